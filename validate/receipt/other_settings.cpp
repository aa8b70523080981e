#include "validate/receipt/other_settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "engine/generate/draw.h"

namespace llm {
namespace {

/// A setting and the whole numbers that stand for its values.
struct Setting {
  const char* name;
  int first;
  int last;
  int unit;  ///< the value is the number divided by this
  void (*put)(SamplerOptions& sampler, int number);
};

float hundredths(int number) { return static_cast<float>(number / 100.0); }

constexpr Setting kSettings[] = {
    {"temperature", 0, 300, 100, [](SamplerOptions& s, int n) { s.temperature = hundredths(n); }},
    {"top_k", 0, 200, 1, [](SamplerOptions& s, int n) { s.top_k = static_cast<std::size_t>(n); }},
    {"top_p", 0, 100, 100, [](SamplerOptions& s, int n) { s.top_p = hundredths(n); }},
    {"min_p", 0, 100, 100, [](SamplerOptions& s, int n) { s.min_p = hundredths(n); }},
    {"repeat_penalty", 50, 200, 100,
     [](SamplerOptions& s, int n) { s.repeat_penalty = hundredths(n); }},
    {"repeat_last_n", -1, 1024, 1, [](SamplerOptions& s, int n) { s.repeat_last_n = n; }},
    {"seed", 0, 9999, 1, [](SamplerOptions& s, int n) { s.seed = static_cast<std::uint64_t>(n); }},
};

bool draws_all(const Receipt& receipt, const DrawnRows& rows, const Tokenizer& tokenizer,
               const GenerateOptions& options) {
  std::vector<TokenId> past = receipt.prompt_ids;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto id = draw_token(tokenizer, rows.row(i), past, past.size(), options);
    if (!id.ok() || *id != receipt.ids[i] || ends_text(tokenizer, *id, options)) return false;
    past.push_back(*id);
  }
  return true;
}

std::optional<std::string> value_that_draws(const Setting& setting, const Receipt& receipt,
                                            const DrawnRows& rows, const Tokenizer& tokenizer) {
  GenerateOptions options = receipt.generation(tokenizer);
  for (int number = setting.first; number <= setting.last; ++number) {
    setting.put(options.sampler, number);
    if (draws_all(receipt, rows, tokenizer, options))
      return fmt::format("{} {}", setting.name, static_cast<double>(number) / setting.unit);
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> settings_that_draw(const Receipt& receipt, const DrawnRows& rows,
                                            const Tokenizer& tokenizer) {
  std::vector<std::string> found;
  if (rows.size() == 0) return found;
  for (const Setting& setting : kSettings) {
    auto value = value_that_draws(setting, receipt, rows, tokenizer);
    if (value) found.push_back(*std::move(value));
  }
  GenerateOptions options = receipt.generation(tokenizer);
  const bool is_hf = options.sampler.order == SamplerOrder::kHf;
  options.sampler.order = is_hf ? SamplerOrder::kLlamaCpp : SamplerOrder::kHf;
  if (draws_all(receipt, rows, tokenizer, options))
    found.emplace_back(is_hf ? "sampler_order llamacpp" : "sampler_order hf");
  return found;
}

}  // namespace llm
