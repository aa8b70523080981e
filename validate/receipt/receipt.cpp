#include "validate/receipt/receipt.h"

#include <fmt/core.h>

#include <concepts>
#include <memory>
#include <span>
#include <vector>

#include "base/json.h"
#include "engine/generate/conversation.h"
#include "engine/sampler/sampler_fields.h"
#include "validate/receipt/receipt_names.h"

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
                      {"chat_template", r.chat_format ? chat_format_name(*r.chat_format) : ""},
                      {"n", r.max_tokens ? OrderedJson(*r.max_tokens) : OrderedJson(-1)},
                      {"stop", r.stop},
                      {"ignore_eos", r.ignore_eos},
                      {"logit_bias", bias_json(r.logit_bias)},
                      {"seed", r.sampler.seed},
                      {"sequence", r.sequence}};
  for (const SamplerField& field : kSamplerFields)
    field.visit(r.sampler, [&](auto value) { json[field.name] = shortest(value); });
  json["sampler_order"] = sampler_order_name(r.sampler.order);
  json["context"] = r.context;
  json["kv"] = kv_name(r.kv);
  json["compute"] = receipt_names::compute(r.compute);
  return json;
}

}  // namespace

GenerateOptions Receipt::generation(const Tokenizer& tokenizer) const {
  GenerateOptions options;
  options.sampler = sampler;
  options.sequence = sequence;
  options.max_tokens = max_tokens;
  options.stop = stop;
  options.ignore_eos = ignore_eos;
  if (!logit_bias.empty())
    options.logit_bias = std::make_shared<std::vector<LogitBias>>(logit_bias);
  options.continues_text = !is_chat() && (!prompt || !prompt->empty());
  if (is_chat()) add_reply_ends(*chat_format, tokenizer, options);
  return options;
}

std::string receipt_json(const Receipt& r) {
  OrderedJson json = {{"format", receipt_names::kFormat},
                      {"contract_version", r.contract_version},
                      {"engine_version", r.engine_version},
                      {"model", {{"name", r.model_name}, {"sha256", r.model_sha256}}},
                      {"options", options_json(r)}};
  if (r.prompt) json["prompt"] = *r.prompt;
  json["prompt_ids"] = r.prompt_ids;
  json["ids"] = r.ids;
  json["text"] = r.text;
  json["stop_reason"] = stop_reason_name(r.stop_reason);
  if (r.logits_sha256) json["logits_sha256"] = *r.logits_sha256;
  json["drawn_logits_sha256"] = r.drawn_logits_sha256;
  return json_text(json, 2) + '\n';
}

}  // namespace llm
