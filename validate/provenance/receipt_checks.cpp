#include "validate/provenance/receipt_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/json_members.h"
#include "base/shown_text.h"
#include "engine/generation/conversation.h"
#include "engine/generation/draw.h"
#include "quant/numerics/contract.h"

namespace llm {
namespace {

constexpr std::size_t kRowBytes = std::size_t{64} << 20;  // of logits held at once

Status check_receipt(const Receipt& receipt, std::size_t n_vocab) {
  if (receipt.contract_version != contract::kContractVersion) {
    return Error{ErrorCode::kIntegrity, "contract_version",
                 fmt::format("found {}, need {}, this engine's", receipt.contract_version,
                             contract::kContractVersion)};
  }
  for (const auto& [name, ids] :
       {std::pair("prompt_ids", &receipt.prompt_ids), std::pair("ids", &receipt.ids)}) {
    const auto bad = std::ranges::find_if(
        *ids, [&](TokenId id) { return static_cast<std::size_t>(id) >= n_vocab; });
    if (bad != ids->end())
      return malformed_json(fmt::format("{}[{}]", name, bad - ids->begin()), std::to_string(*bad),
                            fmt::format("an id below {}, the vocabulary's size", n_vocab));
  }
  for (const LogitBias& bias : receipt.logit_bias) {
    if (static_cast<std::size_t>(bias.id) >= n_vocab)
      return malformed_json("options.logit_bias", std::to_string(bias.id),
                            fmt::format("an id below {}, the vocabulary's size", n_vocab));
  }
  if (receipt.stop_reason == StopReason::kInterrupted && receipt.ids.empty()) {
    return Error{ErrorCode::kUnsupported, "stop_reason",
                 "found \"interrupted\" without a token, need at least one token"};
  }
  return Ok{};
}

}  // namespace

Result<std::vector<TokenId>> encode_prompt(const Receipt& receipt, const Tokenizer& tokenizer,
                                           const ChatStyle* style) {
  if (style == nullptr)
    return tokenizer.encode(*receipt.prompt,
                            {.add_eos = false, .parse_special = receipt.parse_special});
  OrderedJson messages = OrderedJson::array();
  for (const ReceiptMessage& one : receipt.messages)
    messages.push_back(chat_message(one.role, one.content));
  if (messages.empty()) {
    if (!receipt.system.empty()) messages.push_back(chat_message("system", receipt.system));
    messages.push_back(chat_message("user", *receipt.prompt));
  }
  LLM_TRY(const auto parts, style->render(std::move(messages)));
  return style->encode(parts, true);
}

Result<std::shared_ptr<const ChatStyle>> ReceiptModel::style(const Receipt& receipt) {
  if (!receipt.is_chat()) return std::shared_ptr<const ChatStyle>();
  auto& style = styles_[receipt.chat_template];
  if (style == nullptr) {
    auto found = ChatStyle::find(receipt.chat_template, model_.chat_template(), model_.tokenizer());
    if (!found.ok()) {
      Error error = std::move(found).error();
      error.field = "options.chat_template";
      return error;
    }
    style = std::move(found).value();
  }
  return style;
}

Result<std::shared_ptr<const Grammar>> ReceiptModel::grammar(const Receipt& receipt) {
  if (!receipt.grammar) return std::shared_ptr<const Grammar>();
  auto compiled = grammars_.compile(*receipt.grammar);
  if (compiled.ok()) return compiled;
  Error error = std::move(compiled).error();
  error.field = "options.grammar" + error.field;
  return error;
}

Result<ReceiptTerms> ReceiptTerms::of(ReceiptModel& model, const Receipt& receipt) {
  LLM_RETURN_IF_ERROR(check_receipt(receipt, model.model().config().n_vocab));
  LLM_TRY(auto grammar, model.grammar(receipt));
  LLM_TRY(auto style, model.style(receipt));
  ReceiptTerms terms{.style = std::move(style), .options = {}};
  terms.options = receipt.generation(terms.style.get());
  terms.options.grammar = std::move(grammar);
  return terms;
}

std::size_t receipt_batch(std::size_t n_vocab) {
  return std::clamp<std::size_t>(kRowBytes / sizeof(float) / n_vocab, 16, 512);
}

std::string shown_token(const Tokenizer& tokenizer, TokenId id) {
  return fmt::format("{} {}", id, llm::quoted(tokenizer.piece_text(id, true)));
}

std::optional<CheckResult> check_prompt(const Receipt& receipt, const Tokenizer& tokenizer,
                                        const ChatStyle* style) {
  if (!receipt.prompt && receipt.messages.empty()) return std::nullopt;
  const auto ids = encode_prompt(receipt, tokenizer, style);
  const bool equal = ids.ok() && *ids == receipt.prompt_ids;
  std::string detail = fmt::format("{} tokens", receipt.prompt_ids.size());
  if (!ids.ok()) {
    detail = ids.error().to_string();
  } else if (!equal) {
    const auto at = static_cast<std::size_t>(std::ranges::mismatch(*ids, receipt.prompt_ids).in1 -
                                             ids->begin());
    const auto id_at = [&](const std::vector<TokenId>& of) {
      return at < of.size() ? shown_token(tokenizer, of[at]) : std::string("none");
    };
    detail = fmt::format("token {}: the text gives {}, the receipt has {}", at, id_at(*ids),
                         id_at(receipt.prompt_ids));
  }
  return CheckResult{"the prompt's text gives its ids", equal, std::move(detail)};
}

CheckResult check_text(const Receipt& receipt, const Tokenizer& tokenizer,
                       const GenerateOptions& options, GenerationState& text) {
  const std::size_t n_seen = text.result.ids.size();
  const auto next = text.drawn();
  if (receipt.prompt_ids.size() + receipt.ids.size() > receipt.context) {
    text.end(StopReason::kContextFull);
  } else if (!next) {
    std::vector<TokenId> none;
    (void)text.advance(none, 0);  // it has all its tokens, be it none
  } else if (ends_text(tokenizer, *next, options)) {
    text.end(StopReason::kEos);
  }
  text.end(StopReason::kInterrupted);  // where nothing else ended it
  (void)text.finish();                 // no callback, so nothing fails
  const StopReason reason = text.result.stop_reason;
  const char* name = "text and end";
  if (options.max_tokens && receipt.ids.size() > *options.max_tokens)
    return {name, false,
            fmt::format("found {} tokens, need at most options.n, {}", receipt.ids.size(),
                        *options.max_tokens)};
  if (n_seen != receipt.ids.size() || reason != receipt.stop_reason)
    return {name, false,
            fmt::format("found \"{}\" after {} tokens, need \"{}\" after {}",
                        stop_reason_name(receipt.stop_reason), receipt.ids.size(),
                        stop_reason_name(reason), n_seen)};
  if (text.result.text != receipt.text)
    return {name, false,
            fmt::format("found {}, need {}, the tokens' text", llm::quoted(receipt.text),
                        llm::quoted(text.result.text))};
  return {name, true, std::string(stop_reason_name(reason))};
}

}  // namespace llm
