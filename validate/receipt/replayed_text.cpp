#include "validate/receipt/replayed_text.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/shown_text.h"
#include "engine/generate/conversation.h"
#include "engine/generate/draw.h"
#include "quant/contract/contract.h"
#include "validate/report/json_members.h"

namespace llm {
namespace {

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
                 "found \"interrupted\" without a token, need a text that began"};
  }
  return Ok{};
}

/// The options of its draws.
GenerateOptions generation(const Receipt& receipt, const ChatStyle* style,
                           const std::shared_ptr<const Grammar>& grammar) {
  GenerateOptions options = receipt.generation(style);
  options.grammar = grammar;
  return options;
}

}  // namespace

Result<std::shared_ptr<const ChatStyle>> ReplayModel::style(const Receipt& receipt) {
  if (!receipt.is_chat()) return std::shared_ptr<const ChatStyle>();
  auto& style = styles_[receipt.chat_template];
  if (style == nullptr) {
    auto found =
        ChatStyle::find(receipt.chat_template, model_.chat_template(), model_.tokenizer());
    if (!found.ok()) {
      Error error = std::move(found).error();
      error.field = "options.chat_template";
      return error;
    }
    style = std::move(found).value();
  }
  return style;
}

Result<std::shared_ptr<const Grammar>> ReplayModel::grammar(const Receipt& receipt) {
  if (!receipt.grammar) return std::shared_ptr<const Grammar>();
  auto compiled = grammars_.compile(*receipt.grammar);
  if (compiled.ok()) return compiled;
  Error error = std::move(compiled).error();
  error.field = "options.grammar" + error.field;
  return error;
}

Result<std::unique_ptr<ReplayedText>> ReplayedText::create(ReplayModel& model,
                                                           const Receipt& receipt,
                                                           std::size_t n_kept) {
  LLM_RETURN_IF_ERROR(check_receipt(receipt, model.model().config().n_vocab));
  LLM_TRY(auto grammar, model.grammar(receipt));
  LLM_TRY(auto style, model.style(receipt));
  return std::unique_ptr<ReplayedText>(
      new ReplayedText(model.model(), receipt, std::move(style), std::move(grammar), n_kept));
}

ReplayedText::ReplayedText(const Model& model, const Receipt& receipt,
                           std::shared_ptr<const ChatStyle> style,
                           std::shared_ptr<const Grammar> grammar, std::size_t n_kept)
    : receipt_(receipt),
      tokenizer_(model.tokenizer()),
      style_(std::move(style)),
      options_(generation(receipt, style_.get(), grammar)),
      n_vocab_(model.config().n_vocab),
      first_drawn_(receipt.prompt_ids.size() - 1),
      tokens_(receipt.prompt_ids),
      n_kept_(n_kept),
      text_(tokenizer_, options_, nobody_) {
  tokens_.insert(tokens_.end(), receipt.ids.begin(), receipt.ids.end());
  kept_.n_vocab = n_vocab_;
  if (grammar != nullptr) kept_grammar_.emplace(std::move(grammar), options_.stop_tokens);
}

Segment ReplayedText::next(Sequence& sequence, std::size_t most) const {
  const std::size_t at = sequence.position();
  const bool wants_rows = receipt_.logits_sha256 || at >= first_drawn_;
  const std::size_t end = wants_rows ? n_positions() : std::min(n_positions(), first_drawn_);
  return {&sequence, std::span(tokens_).subspan(at, std::min(most, end - at)),
          wants_rows ? LogitRows::kAll : LogitRows::kNone};
}

Status ReplayedText::take(std::size_t part, std::span<const float> rows, std::size_t at) {
  if (part == 0) return draw(rows, at);
  if (part == 1) {
    if (receipt_.logits_sha256) all_.update(std::as_bytes(rows));
    return Ok{};
  }
  const std::size_t before = (first_drawn_ - std::min(first_drawn_, at)) * n_vocab_;
  drawn_.update(std::as_bytes(rows.subspan(std::min(rows.size(), before))));
  return Ok{};
}

Status ReplayedText::draw(std::span<const float> rows, std::size_t at) {
  for (std::size_t i = 0; i < rows.size() / n_vocab_; ++i) {
    if (at + i < first_drawn_) continue;
    const std::size_t which = at + i - first_drawn_;
    const auto row = rows.subspan(i * n_vocab_, n_vocab_);
    const bool is_last = which == receipt_.ids.size();
    if (!is_last && which < n_kept_) LLM_RETURN_IF_ERROR(keep(row, receipt_.ids[which]));
    if (differs_) continue;
    const auto past = std::span(tokens_).first(at + i + 1);
    LLM_RETURN_IF_ERROR(text_.draw(row, past, past.size()));
    const auto id = text_.drawn();
    if (is_last || !id) continue;  // what would come next; or the text had ended before
    if (*id != receipt_.ids[which] || ends_text(tokenizer_, *id, options_)) {
      differs_ = Difference{which, *id};
    } else {
      LLM_RETURN_IF_ERROR(text_.advance(drawn_ids_, 0));
    }
  }
  return Ok{};
}

/// Keeps the row that `id` was drawn from, as far as the receipt's ids are in the grammar.
Status ReplayedText::keep(std::span<const float> row, TokenId id) {
  if (left_grammar_) return Ok{};
  kept_.logits.insert(kept_.logits.end(), row.begin(), row.end());
  if (!kept_grammar_) return Ok{};
  LLM_TRY(const auto mask, kept_grammar_->mask());
  kept_.masks.insert(kept_.masks.end(), mask.begin(), mask.end());
  left_grammar_ = !allows(mask, id) || !kept_grammar_->accept(id).ok();
  return Ok{};
}

bool ReplayedText::logits_equal() const {
  return drawn_.hex() == receipt_.drawn_logits_sha256 &&
         (!receipt_.logits_sha256 || all_.hex() == *receipt_.logits_sha256);
}

std::string ReplayedText::shown(TokenId id) const {
  return fmt::format("{} {}", id, llm::quoted(tokenizer_.piece_text(id, true)));
}

std::optional<CheckResult> ReplayedText::check_prompt() const {
  if (!receipt_.prompt) return std::nullopt;
  const auto ids = encode_prompt();
  const bool equal = ids.ok() && *ids == receipt_.prompt_ids;
  std::string detail = fmt::format("{} tokens", receipt_.prompt_ids.size());
  if (!ids.ok()) {
    detail = ids.error().to_string();
  } else if (!equal) {
    const auto at = static_cast<std::size_t>(
        std::ranges::mismatch(*ids, receipt_.prompt_ids).in1 - ids->begin());
    const auto id_at = [&](const std::vector<TokenId>& of) {
      return at < of.size() ? shown(of[at]) : std::string("none");
    };
    detail = fmt::format("token {}: the text gives {}, the receipt has {}", at, id_at(*ids),
                         id_at(receipt_.prompt_ids));
  }
  return CheckResult{"the prompt's text gives its ids", equal, std::move(detail)};
}

Result<std::vector<TokenId>> ReplayedText::encode_prompt() const {
  if (style_ == nullptr)
    return tokenizer_.encode(*receipt_.prompt,
                             {.add_eos = false, .parse_special = receipt_.parse_special});
  OrderedJson messages = OrderedJson::array();
  if (!receipt_.system.empty()) messages.push_back(chat_message("system", receipt_.system));
  messages.push_back(chat_message("user", *receipt_.prompt));
  LLM_TRY(const auto parts, style_->render(std::move(messages)));
  return style_->encode(parts, true);
}

std::string ReplayedText::describe_logits(bool equal, bool drawn) const {
  if (equal) return fmt::format("SHA-256 of {} positions", n_positions());
  std::string words = fmt::format("drawn from: found {}, need {}, the receipt's", drawn_.hex(),
                                  receipt_.drawn_logits_sha256);
  if (drawn)
    words +=
        "; yet the settings draw its tokens: the hash or an id of the prompt is not the run's";
  return words;
}

std::string ReplayedText::describe_tokens(bool logits) const {
  if (!differs_) return fmt::format("{} drawn again", receipt_.ids.size());
  const std::string place =
      fmt::format("token {}: the receipt has {}, drawn is {}", differs_->at,
                  shown(receipt_.ids[differs_->at]), shown(differs_->drawn));
  if (!logits) return place + "; the logits are not the run's either: a token was changed";
  if (differs_->at >= kept_.size()) return place + "; the logits are the run's: a setting is not";
  const auto others = settings_that_draw(receipt_, kept_, tokenizer_, style_.get());
  if (others.empty())
    return place + "; the logits are the run's: the seed is not, or more than one setting";
  return fmt::format("{}; the logits are the run's: a setting is not; {} would draw its tokens",
                     place, fmt::join(others, " or "));
}

/// Text and reason follow from the tokens. @pre they are those drawn
CheckResult ReplayedText::check_end() {
  const std::size_t n_seen = text_.result.ids.size();
  const auto next = text_.drawn();
  if (tokens_.size() > receipt_.context) {
    text_.end(StopReason::kContextFull);
  } else if (!next) {
    (void)text_.advance(drawn_ids_, 0);  // it has all its tokens, be it none
  } else if (ends_text(tokenizer_, *next, options_)) {
    text_.end(StopReason::kEos);
  }
  text_.end(StopReason::kInterrupted);  // where nothing else ended it
  (void)text_.finish();                 // no callback, so nothing fails
  const StopReason reason = text_.result.stop_reason;
  const char* name = "text and end";
  if (options_.max_tokens && receipt_.ids.size() > *options_.max_tokens)
    return {name, false,
            fmt::format("found {} tokens, need at most options.n, {}", receipt_.ids.size(),
                        *options_.max_tokens)};
  if (n_seen != receipt_.ids.size() || reason != receipt_.stop_reason)
    return {name, false,
            fmt::format("found \"{}\" after {} tokens, need \"{}\" after {}",
                        stop_reason_name(receipt_.stop_reason), receipt_.ids.size(),
                        stop_reason_name(reason), n_seen)};
  if (text_.result.text != receipt_.text)
    return {name, false,
            fmt::format("found {}, need {}, the tokens' text", llm::quoted(receipt_.text),
                        llm::quoted(text_.result.text))};
  return {name, true, std::string(stop_reason_name(reason))};
}

std::vector<CheckResult> ReplayedText::checks() {
  const bool logits = logits_equal();
  const bool drawn = !differs_;
  std::vector<CheckResult> out;
  if (auto prompt = check_prompt()) out.push_back(*std::move(prompt));
  out.push_back({"logits", logits, describe_logits(logits, drawn)});
  out.push_back({"tokens", drawn, describe_tokens(logits)});
  if (drawn) out.push_back(check_end());
  return out;
}

}  // namespace llm
