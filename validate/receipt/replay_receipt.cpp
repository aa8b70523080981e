#include "validate/receipt/replay_receipt.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/shown_text.h"
#include "engine/generate/conversation.h"
#include "engine/generate/draw.h"
#include "engine/generate/growing_text.h"
#include "engine/generate/logits_hash.h"
#include "quant/contract/contract.h"
#include "validate/receipt/receipt.h"
#include "validate/report/json_members.h"

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
                 "found \"interrupted\" without a token, need a text that began"};
  }
  return Ok{};
}

/// One receipt on its way through the model.
class Replay {
 public:
  /// @param style  null where the receipt is no chat's
  /// @param grammar  the receipt's; null: it has none
  Replay(const Receipt& receipt, const Tokenizer& tokenizer, const ChatStyle* style,
         std::size_t n_vocab, std::shared_ptr<const Grammar> grammar)
      : receipt_(receipt),
        tokenizer_(tokenizer),
        style_(style),
        options_(generation(receipt, style, grammar)),
        n_vocab_(n_vocab),
        first_drawn_(receipt.prompt_ids.size() - 1),
        n_rows_(std::clamp<std::size_t>(kRowBytes / sizeof(float) / n_vocab, 16, 512)),
        tokens_(receipt.prompt_ids),
        hash_(n_vocab, first_drawn_, receipt.logits_sha256 ? 0 : first_drawn_),
        text_(tokenizer, options_, nobody_) {
    tokens_.insert(tokens_.end(), receipt.ids.begin(), receipt.ids.end());
    kept_.n_vocab = n_vocab;
    if (grammar != nullptr) kept_grammar_.emplace(std::move(grammar), options_.stop_tokens);
  }

  /// Tokens that have a position.
  std::size_t n_positions() const { return std::min(tokens_.size(), receipt_.context); }
  std::size_t n_rows() const { return n_rows_; }

  Status evaluate(Session& session, const Progress& progress) {
    const std::size_t n = n_positions();
    while (session.position() < n) {
      const std::size_t at = session.position();
      const bool wants_rows = receipt_.logits_sha256 || at >= first_drawn_;
      const std::size_t end = wants_rows ? n : std::min(n, first_drawn_);
      const std::size_t count = std::min(n_rows_, end - at);
      LLM_TRY(const auto rows, session.evaluate(std::span(tokens_).subspan(at, count),
                                                wants_rows ? LogitRows::kAll : LogitRows::kNone));
      if (wants_rows) LLM_RETURN_IF_ERROR(take(rows, at));
      if (progress) progress("replay", at + count, n);
    }
    return Ok{};
  }

  std::vector<CheckResult> checks() {
    const bool logits = logits_equal();
    const bool drawn = !differs_;
    std::vector<CheckResult> out;
    if (auto prompt = check_prompt()) out.push_back(*std::move(prompt));
    out.push_back({"receipt: logits", logits, describe_logits(logits, drawn)});
    out.push_back({"receipt: tokens", drawn, describe_tokens(logits)});
    if (drawn) out.push_back(check_end());
    return out;
  }

 private:
  struct Difference {
    std::size_t at;  ///< of the receipt's ids
    TokenId drawn;
  };

  /// Rows of the positions from `at` on.
  Status take(std::span<const float> rows, std::size_t at) {
    hash_.add(rows);
    for (std::size_t i = 0; i < rows.size() / n_vocab_; ++i) {
      if (at + i < first_drawn_) continue;
      const std::size_t which = at + i - first_drawn_;
      const auto row = rows.subspan(i * n_vocab_, n_vocab_);
      const bool is_last = which == receipt_.ids.size();
      if (!is_last && which < n_rows_) LLM_RETURN_IF_ERROR(keep(row, receipt_.ids[which]));
      if (differs_) continue;
      const auto past = std::span(tokens_).first(at + i + 1);
      LLM_RETURN_IF_ERROR(text_.draw(row, past, past.size()));
      const auto id = text_.drawn();
      if (is_last || !id) continue;  // what would come next; or the text had ended before
      if (*id != receipt_.ids[which] || ends_text(tokenizer_, *id, options_)) {
        differs_ = Difference{which, *id};
      } else {
        LLM_RETURN_IF_ERROR(text_.advance(drawn_, 0));
      }
    }
    return Ok{};
  }

  static GenerateOptions generation(const Receipt& receipt, const ChatStyle* style,
                                    const std::shared_ptr<const Grammar>& grammar) {
    GenerateOptions options = receipt.generation(style);
    options.grammar = grammar;
    return options;
  }

  /// Keeps the row that `id` was drawn from, as far as the receipt's ids are in the grammar.
  Status keep(std::span<const float> row, TokenId id) {
    if (left_grammar_) return Ok{};
    kept_.logits.insert(kept_.logits.end(), row.begin(), row.end());
    if (!kept_grammar_) return Ok{};
    LLM_TRY(const auto mask, kept_grammar_->mask());
    kept_.masks.insert(kept_.masks.end(), mask.begin(), mask.end());
    left_grammar_ = !allows(mask, id) || !kept_grammar_->accept(id).ok();
    return Ok{};
  }

  bool logits_equal() const {
    return hash_.drawn() == receipt_.drawn_logits_sha256 &&
           (!receipt_.logits_sha256 || hash_.all() == *receipt_.logits_sha256);
  }

  std::string shown(TokenId id) const {
    return fmt::format("{} {}", id, llm::quoted(tokenizer_.piece_text(id, true)));
  }

  std::optional<CheckResult> check_prompt() const {
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
    return CheckResult{"receipt: the prompt's text gives its ids", equal, std::move(detail)};
  }

  Result<std::vector<TokenId>> encode_prompt() const {
    if (style_ == nullptr)
      return tokenizer_.encode(*receipt_.prompt,
                               {.add_eos = false, .parse_special = receipt_.parse_special});
    OrderedJson messages = OrderedJson::array();
    if (!receipt_.system.empty()) messages.push_back(chat_message("system", receipt_.system));
    messages.push_back(chat_message("user", *receipt_.prompt));
    LLM_TRY(const auto parts, style_->render(std::move(messages)));
    return style_->encode(parts, true);
  }

  std::string describe_logits(bool equal, bool drawn) const {
    if (equal) return fmt::format("SHA-256 of {} positions", n_positions());
    std::string words = fmt::format("drawn from: found {}, need {}, the receipt's", hash_.drawn(),
                                    receipt_.drawn_logits_sha256);
    if (drawn)
      words +=
          "; yet the settings draw its tokens: the hash or an id of the prompt is not the run's";
    return words;
  }

  std::string describe_tokens(bool logits) const {
    if (!differs_) return fmt::format("{} drawn again", receipt_.ids.size());
    const std::string place =
        fmt::format("token {}: the receipt has {}, drawn is {}", differs_->at,
                    shown(receipt_.ids[differs_->at]), shown(differs_->drawn));
    if (!logits) return place + "; the logits are not the run's either: a token was changed";
    if (differs_->at >= kept_.size()) return place + "; the logits are the run's: a setting is not";
    const auto others = settings_that_draw(receipt_, kept_, tokenizer_, style_);
    if (others.empty())
      return place + "; the logits are the run's: the seed is not, or more than one setting";
    return fmt::format("{}; the logits are the run's: a setting is not; {} would draw its tokens",
                       place, fmt::join(others, " or "));
  }

  /// Text and reason follow from the tokens. @pre they are those drawn
  CheckResult check_end() {
    const std::size_t n_seen = text_.result.ids.size();
    const auto next = text_.drawn();
    if (tokens_.size() > receipt_.context) {
      text_.end(StopReason::kContextFull);
    } else if (!next) {
      (void)text_.advance(drawn_, 0);  // it has all its tokens, be it none
    } else if (ends_text(tokenizer_, *next, options_)) {
      text_.end(StopReason::kEos);
    }
    text_.end(StopReason::kInterrupted);  // where nothing else ended it
    (void)text_.finish();                 // no callback, so nothing fails
    const StopReason reason = text_.result.stop_reason;
    const char* name = "receipt: text and end";
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

  const Receipt& receipt_;
  const Tokenizer& tokenizer_;
  const ChatStyle* style_;
  GenerateOptions options_;
  std::size_t n_vocab_;
  std::size_t first_drawn_;  ///< position whose logits the first token is drawn from
  std::size_t n_rows_;       ///< most rows of one evaluation
  std::vector<TokenId> tokens_;
  LogitsHash hash_;
  DrawnRows kept_;
  std::optional<GrammarState> kept_grammar_;  ///< behind the ids of kept_
  bool left_grammar_ = false;
  std::optional<Difference> differs_;
  GenerateSink nobody_;
  GrowingText text_;
  std::vector<TokenId> drawn_;
};

}  // namespace

Result<ReplayOutcome> replay_receipt(const std::shared_ptr<const Model>& model,
                                     const Receipt& receipt, const Progress& progress) {
  const std::size_t n_vocab = model->config().n_vocab;
  LLM_RETURN_IF_ERROR(check_receipt(receipt, n_vocab));
  std::shared_ptr<const Grammar> grammar;
  if (receipt.grammar) {
    auto compiled = Grammar::compile(*receipt.grammar, model->tokenizer());
    if (!compiled.ok()) {
      Error error = std::move(compiled).error();
      error.field = "options.grammar" + error.field;
      return error;
    }
    grammar = *std::move(compiled);
  }
  std::shared_ptr<const ChatStyle> style;
  if (receipt.is_chat()) {
    auto found = ChatStyle::find(receipt.chat_template, model->chat_template(), model->tokenizer());
    if (!found.ok()) {
      Error error = std::move(found).error();
      error.field = "options.chat_template";
      return error;
    }
    style = std::move(found).value();
  }
  Replay replay(receipt, model->tokenizer(), style.get(), n_vocab, std::move(grammar));
  LLM_TRY(const auto session, open_sequence(model, {.context = replay.n_positions(),
                                                    .kv = receipt.kv,
                                                    .batch = replay.n_rows()}));
  ReplayOutcome outcome;
  outcome.n_positions = replay.n_positions();
  const auto start = std::chrono::steady_clock::now();
  LLM_RETURN_IF_ERROR(replay.evaluate(*session, progress));
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  outcome.checks = replay.checks();
  return outcome;
}

}  // namespace llm
