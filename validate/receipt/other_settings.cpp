#include "validate/receipt/other_settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "engine/generate/draw.h"
#include "engine/sampler/sampler_fields.h"

namespace llm {
namespace {

constexpr int kLastSeed = 9999;

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

/// The first whole number in [first, last] that draws the tokens when `put` makes it the value.
template <typename Put>
std::optional<int> number_that_draws(const Receipt& receipt, const DrawnRows& rows,
                                     const Tokenizer& tokenizer, int first, int last, Put put) {
  GenerateOptions options = receipt.generation(tokenizer);
  for (int number = first; number <= last; ++number) {
    put(options.sampler, number);
    if (draws_all(receipt, rows, tokenizer, options)) return number;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> settings_that_draw(const Receipt& receipt, const DrawnRows& rows,
                                            const Tokenizer& tokenizer) {
  std::vector<std::string> found;
  if (rows.size() == 0) return found;
  for (const SamplerField& field : kSamplerFields) {
    const auto value = [&](int number) { return static_cast<double>(number) / field.unit; };
    const auto found_number =
        number_that_draws(receipt, rows, tokenizer, field.first, field.last,
                          [&](SamplerOptions& s, int n) { field.set(s, value(n)); });
    if (found_number) found.push_back(fmt::format("{} {}", field.name, value(*found_number)));
  }
  const auto seed =
      number_that_draws(receipt, rows, tokenizer, 0, kLastSeed,
                        [](SamplerOptions& s, int n) { s.seed = static_cast<std::uint64_t>(n); });
  if (seed) found.push_back(fmt::format("seed {}", *seed));
  GenerateOptions options = receipt.generation(tokenizer);
  const bool is_hf = options.sampler.order == SamplerOrder::kHf;
  options.sampler.order = is_hf ? SamplerOrder::kLlamaCpp : SamplerOrder::kHf;
  if (draws_all(receipt, rows, tokenizer, options))
    found.emplace_back(is_hf ? "sampler_order llamacpp" : "sampler_order hf");
  return found;
}

}  // namespace llm
