#include "validate/provenance/receipt.h"

#include <fmt/core.h>

#include <algorithm>
#include <concepts>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/json.h"
#include "engine/generation/conversation.h"
#include "engine/generation/draw.h"
#include "engine/sampler/sampler_fields.h"

namespace llm {
namespace {

/// The shortest decimal that reads back as `value`: 0.95, not 0.949999988079071.
OrderedJson shortest(float value) { return parse_ordered_json(fmt::format("{}", value)); }
OrderedJson shortest(std::integral auto value) { return value; }

OrderedJson bias_json(std::span<const LogitBias> biases) {
  OrderedJson json = OrderedJson::array();
  for (const LogitBias& bias : biases) json.push_back({bias.id, shortest(bias.added)});
  return json;
}

OrderedJson options_json(const Receipt& r) {
  OrderedJson json = {{"parse_special", r.parse_special},
                      {"system", r.system},
                      {"chat_template", r.chat_template},
                      {"n", r.max_tokens ? OrderedJson(*r.max_tokens) : OrderedJson(-1)},
                      {"stop", r.stop},
                      {"ignore_eos", r.ignore_eos},
                      {"logit_bias", bias_json(r.logit_bias)},
                      {"seed", r.sampler.seed},
                      {"sequence", r.sequence}};
  if (r.show_special) json["show_special"] = true;
  if (r.grammar)
    json["grammar"] = {{"kind", grammar_kind_name(r.grammar->kind)}, {"text", r.grammar->text}};
  const SamplerOptions usual;
  for (const SamplerField& field : kSamplerFields) {
    field.visit(r.sampler, [&](auto value) {
      const bool is_usual =
          value == field.visit(usual, [](auto one) { return static_cast<decltype(value)>(one); });
      if (!field.may_be_absent || !is_usual) json[field.name] = shortest(value);
    });
  }
  json["sampler_order"] = sampler_order_name(r.sampler.order);
  json["context"] = r.context;
  json["kv"] = kv_name(r.kv);
  json["compute"] = compute_name(r.compute);
  return json;
}

constexpr int kLastSeed = 9999;

class KeptMask final : public NextTokens {
 public:
  explicit KeptMask(std::span<const std::uint32_t> words) : words_(words) {}
  Result<bool> takes(TokenId id) override { return allows(words_, id); }
  Result<std::span<const std::uint32_t>> mask() override { return words_; }

 private:
  std::span<const std::uint32_t> words_;
};

bool draws_all(const Receipt& receipt, const DrawnRows& rows, const Tokenizer& tokenizer,
               const GenerateOptions& options) {
  const std::vector<TokenId> tokens = receipt.tokens();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto past = std::span(tokens).first(receipt.prompt_ids.size() + rows.number(i));
    KeptMask mask(rows.mask(i));
    const auto id = draw_token(tokenizer, rows.row(i), past, past.size(), rows.number(i), options,
                               rows.masks.empty() ? nullptr : &mask);
    const TokenId own = receipt.ids[rows.number(i)];
    if (!id.ok() || *id != own || ends_text(tokenizer, *id, options)) return false;
  }
  return true;
}

/// The first whole number in [first, last] that draws the tokens when `put` makes it the value.
template <typename Put>
std::optional<int> number_that_draws(const Receipt& receipt, const DrawnRows& rows,
                                     const Tokenizer& tokenizer, const ChatStyle* style, int first,
                                     int last, Put put) {
  GenerateOptions options = receipt.generation(style);
  for (int number = first; number <= last; ++number) {
    put(options.sampler, number);
    if (draws_all(receipt, rows, tokenizer, options)) return number;
  }
  return std::nullopt;
}

}  // namespace

std::vector<TokenId> Receipt::tokens() const {
  std::vector<TokenId> all = prompt_ids;
  all.insert(all.end(), ids.begin(), ids.end());
  return all;
}

std::vector<TokenId> Receipt::evaluated() const {
  std::vector<TokenId> all = tokens();
  all.resize(std::min(all.size(), context));
  return all;
}

GenerateOptions Receipt::generation(const ChatStyle* style) const {
  GenerateOptions options;
  options.sampler = sampler;
  options.sequence = sequence;
  options.max_tokens = max_tokens;
  options.stop = stop;
  options.ignore_eos = ignore_eos;
  options.show_special = show_special;
  if (!logit_bias.empty())
    options.logit_bias = std::make_shared<std::vector<LogitBias>>(logit_bias);
  options.continues_text = !is_chat() && (!prompt || !prompt->empty());
  if (style != nullptr) style->add_reply_ends(options);
  return options;
}

std::string receipt_json(const Receipt& r) {
  OrderedJson json = {{"format", kReceiptFormat},
                      {"contract_version", r.contract_version},
                      {"engine_version", r.engine_version},
                      {"model", {{"name", r.model_name}, {"sha256", r.model_sha256}}},
                      {"options", options_json(r)}};
  if (r.prompt) json["prompt"] = *r.prompt;
  for (const ReceiptMessage& message : r.messages)
    json["messages"].push_back(chat_message(message.role, message.content));
  json["prompt_ids"] = r.prompt_ids;
  json["ids"] = r.ids;
  json["text"] = r.text;
  json["stop_reason"] = stop_reason_name(r.stop_reason);
  json["drawn_logits_sha256"] = r.drawn_logits_sha256;
  if (r.rows_sha256) json["rows_sha256"] = *r.rows_sha256;
  return json_text(json, 2) + '\n';
}

std::vector<std::string> settings_that_draw(const Receipt& receipt, const DrawnRows& rows,
                                            const Tokenizer& tokenizer, const ChatStyle* style) {
  std::vector<std::string> found;
  if (rows.size() == 0) return found;
  for (const SamplerField& field : kSamplerFields) {
    const auto value = [&](int number) { return static_cast<double>(number) / field.unit; };
    const auto found_number =
        number_that_draws(receipt, rows, tokenizer, style, field.first, field.last,
                          [&](SamplerOptions& s, int n) { field.set(s, value(n)); });
    if (found_number) found.push_back(fmt::format("{} {}", field.name, value(*found_number)));
  }
  const auto seed =
      number_that_draws(receipt, rows, tokenizer, style, 0, kLastSeed,
                        [](SamplerOptions& s, int n) { s.seed = static_cast<std::uint64_t>(n); });
  if (seed) found.push_back(fmt::format("seed {}", *seed));
  GenerateOptions options = receipt.generation(style);
  const bool is_hf = options.sampler.order == SamplerOrder::kHf;
  options.sampler.order = is_hf ? SamplerOrder::kLlamaCpp : SamplerOrder::kHf;
  if (draws_all(receipt, rows, tokenizer, options))
    found.emplace_back(is_hf ? "sampler_order llamacpp" : "sampler_order hf");
  return found;
}

}  // namespace llm
