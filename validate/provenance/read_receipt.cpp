#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "base/json.h"
#include "base/json_members.h"
#include "engine/sampler/sampler_fields.h"
#include "validate/provenance/receipt.h"

namespace llm {
namespace {

constexpr std::size_t kMaxCount = std::numeric_limits<std::int32_t>::max();

/// One of `values`, by the name that `name_of` gives it.
template <typename Values, typename NameOf>
auto one_of(const JsonMembers& members, const char* key, const Values& values, NameOf name_of)
    -> Result<std::remove_cvref_t<decltype(*std::begin(values))>> {
  LLM_TRY(const std::string name, members.text(key));
  std::string known;
  for (const auto value : values) {
    if (name == name_of(value)) return value;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", name_of(value));
  }
  return malformed_json(members.field(key), shown_json(name), "one of " + known);
}

/// A number that a double holds exactly, whole or not.
Result<double> number(const JsonMembers& members, const char* key, bool whole, double lowest,
                      double highest) {
  const std::string rule =
      fmt::format("{} in {}..{}", whole ? "an integer" : "a number", lowest, highest);
  LLM_TRY(const Json* value, members.member(key, rule));
  const bool fits = (whole ? value->is_number_integer() : value->is_number()) &&
                    value->get<double>() >= lowest && value->get<double>() <= highest;
  if (!fits) return malformed_json(members.field(key), shown_json(*value), rule);
  return value->get<double>();
}

/// Ids of an array that may be empty.
Result<std::vector<TokenId>> ids_of(const JsonMembers& members, const char* key) {
  LLM_TRY(const Json* value, members.member(key, "an array of token ids"));
  if (!value->is_array())
    return malformed_json(members.field(key), shown_json(*value), "an array of token ids");
  return token_ids(*value, members.field(key));
}

Result<std::vector<LogitBias>> biases(const JsonMembers& members) {
  constexpr const char* kKey = "logit_bias";
  const std::string rule = "an array of [token id, number in -1000..1000]";
  LLM_TRY(const Json* value, members.member(kKey, rule));
  if (!value->is_array()) return malformed_json(members.field(kKey), shown_json(*value), rule);
  std::vector<LogitBias> out;
  for (const Json& pair : *value) {
    const std::string field = fmt::format("{}[{}]", members.field(kKey), out.size());
    const bool is_pair = pair.is_array() && pair.size() == 2 && pair[1].is_number() &&
                         std::abs(pair[1].get<double>()) <= 1000;
    if (!is_pair)
      return malformed_json(field, shown_json(pair), "[token id, number in -1000..1000]");
    LLM_TRY(const auto ids, token_ids(Json::array({pair[0]}), field));
    out.push_back({ids.front(), pair[1].get<float>()});
  }
  return out;
}

/// Absent where the text may be anything.
Status read_grammar(const Json& json, Receipt& receipt) {
  if (!json.contains("grammar")) return Ok{};
  const JsonMembers members(json, "options");
  LLM_TRY(const Json* grammar, members.object("grammar"));
  const JsonMembers of_grammar(*grammar, "options.grammar");
  GrammarSource source;
  LLM_TRY(source.kind, one_of(of_grammar, "kind", std::span(kGrammarKinds), grammar_kind_name));
  LLM_TRY(source.text, of_grammar.text("text"));
  receipt.grammar = std::move(source);
  return Ok{};
}

Status read_sampling(const JsonMembers& members, SamplerOptions& sampler) {
  constexpr auto kMost = static_cast<double>(std::numeric_limits<std::int64_t>::max());
  LLM_TRY(sampler.seed, members.count("seed", 0, static_cast<std::size_t>(kMost)));
  for (const SamplerField& field : kSamplerFields) {
    if (field.may_be_absent && !members.has(field.name)) continue;
    LLM_TRY(const double value,
            number(members, field.name, field.is_whole(), field.lowest, field.highest));
    field.set(sampler, value);
  }
  LLM_TRY(sampler.order,
          one_of(members, "sampler_order", std::array{SamplerOrder::kHf, SamplerOrder::kLlamaCpp},
                 sampler_order_name));
  return Ok{};
}

Status read_options(const Json& json, Receipt& receipt) {
  const JsonMembers members(json, "options");
  LLM_TRY(receipt.parse_special, members.boolean("parse_special"));
  if (json.contains("show_special")) {
    LLM_TRY(receipt.show_special, members.boolean("show_special"));
  }
  LLM_TRY(receipt.system, members.text("system"));
  LLM_TRY(receipt.chat_template, members.text("chat_template"));
  if (!ChatStyle::is_name(receipt.chat_template) && !receipt.chat_template.empty())
    return malformed_json(members.field("chat_template"), shown_json(receipt.chat_template),
                          "the name of a built-in template, the SHA-256 of one, or nothing");
  LLM_TRY(const double n, number(members, "n", true, -1, kMaxCount));
  if (n >= 0) receipt.max_tokens = static_cast<std::size_t>(n);
  LLM_TRY(const Json* stop, members.member("stop", "an array of strings"));
  if (!stop->is_array() ||
      !std::ranges::all_of(*stop, [](const Json& value) { return value.is_string(); }))
    return malformed_json("options.stop", shown_json(*stop), "an array of strings");
  receipt.stop = stop->get<std::vector<std::string>>();
  LLM_TRY(receipt.ignore_eos, members.boolean("ignore_eos"));
  LLM_TRY(receipt.logit_bias, biases(members));
  LLM_RETURN_IF_ERROR(read_grammar(json, receipt));
  LLM_TRY(receipt.sequence, members.count("sequence", 0, kMaxCount));
  LLM_RETURN_IF_ERROR(read_sampling(members, receipt.sampler));
  LLM_TRY(receipt.context, members.count("context", 1, kMaxCount));
  LLM_TRY(receipt.kv, one_of(members, "kv", std::span(kKvTypes), kv_name));
  LLM_TRY(receipt.compute,
          one_of(members, "compute", std::array{Compute::kInt8, Compute::kF32}, compute_name));
  return Ok{};
}

/// Absent where a prompt is there, or only ids are.
Status read_messages(const Json& json, const JsonMembers& members, Receipt& receipt) {
  if (!json.contains("messages")) return Ok{};
  LLM_TRY(const Json* messages, members.list("messages"));
  for (const Json& one : *messages) {
    const std::string field = fmt::format("messages[{}]", receipt.messages.size());
    if (!one.is_object()) return malformed_json(field, shown_json(one), "an object");
    const JsonMembers of_one(one, field);
    ReceiptMessage& message = receipt.messages.emplace_back();
    LLM_TRY(message.role, of_one.text("role"));
    LLM_TRY(message.content, of_one.text("content"));
  }
  if (receipt.prompt || !receipt.is_chat())
    return malformed_json("messages", fmt::format("{} messages", messages->size()),
                          "none with a prompt or without options.chat_template");
  return Ok{};
}

Status read_text(const Json& json, Receipt& receipt) {
  const JsonMembers members(json, "");
  if (json.contains("prompt")) {
    LLM_TRY(receipt.prompt, members.text("prompt"));
  }
  LLM_RETURN_IF_ERROR(read_messages(json, members, receipt));
  LLM_TRY(receipt.prompt_ids, ids_of(members, "prompt_ids"));
  if (receipt.prompt_ids.empty())
    return malformed_json("prompt_ids", "0 entries", "an array, not empty");
  LLM_TRY(receipt.ids, ids_of(members, "ids"));
  LLM_TRY(receipt.text, members.text("text"));
  LLM_TRY(receipt.stop_reason,
          one_of(members, "stop_reason",
                 std::array{StopReason::kEos, StopReason::kLength, StopReason::kStopString,
                            StopReason::kContextFull, StopReason::kInterrupted},
                 stop_reason_name));
  LLM_TRY(receipt.drawn_logits_sha256, members.sha256("drawn_logits_sha256"));
  if (json.contains("rows_sha256")) {
    LLM_TRY(receipt.rows_sha256, members.sha256("rows_sha256"));
  }
  const std::size_t n_tokens = receipt.prompt_ids.size() + receipt.ids.size();
  // The last token of a text that fills the context has no position.
  if (receipt.prompt_ids.size() > receipt.context || n_tokens > receipt.context + 1)
    return malformed_json("ids", fmt::format("{} tokens with the prompt's", n_tokens),
                          fmt::format("what fits into options.context, {}", receipt.context));
  return Ok{};
}

}  // namespace

Result<Receipt> parse_receipt(std::string_view text) {
  LLM_TRY(const Json json, parse_json_object(text));
  const JsonMembers members(json, "");
  Receipt receipt;
  LLM_TRY(const std::string format, members.text("format"));
  if (format != kReceiptFormat) {
    return Error{ErrorCode::kUnsupported, "format",
                 fmt::format("found {}, need \"{}\"", shown_json(format), kReceiptFormat)};
  }
  LLM_TRY(const std::size_t contract, members.count("contract_version", 1, kMaxCount));
  receipt.contract_version = static_cast<unsigned>(contract);
  LLM_TRY(receipt.engine_version, members.text("engine_version"));
  LLM_TRY(const Json* model, members.object("model"));
  LLM_TRY(const Json* options, members.object("options"));
  const JsonMembers of_model(*model, "model");
  LLM_TRY(receipt.model_name, of_model.text("name"));
  LLM_TRY(receipt.model_sha256, of_model.sha256("sha256"));
  LLM_RETURN_IF_ERROR(read_options(*options, receipt));
  LLM_RETURN_IF_ERROR(read_text(json, receipt));
  return receipt;
}

}  // namespace llm
