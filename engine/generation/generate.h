#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/generation/speculation.h"
#include "engine/generation/speculative_session.h"
#include "engine/grammar/grammar.h"
#include "engine/sampler/sampler.h"

namespace llm {

class GenerationState;

/// Why a text ended.
enum class StopReason {
  kEos,          ///< the model ended it
  kLength,       ///< max_tokens were generated
  kStopString,   ///< a stop string came
  kContextFull,  ///< no position is left for another token
  kInterrupted,  ///< GenerateOptions::interrupted said so
};

/// "eos", "length", "stop_string", "context_full", "interrupted".
std::string_view stop_reason_name(StopReason reason);

/// Makes a token likelier or less likely.
struct LogitBias {
  TokenId id;   ///< in the vocabulary
  float added;  ///< to its logit, before every step of the sampler; finite
};

struct GenerateOptions {
  SamplerOptions sampler;
  std::uint64_t sequence = 0;             ///< tells texts of one seed apart
  std::optional<std::size_t> max_tokens;  ///< nothing: until the text ends by itself
  std::vector<std::string> stop;          ///< the text ends before the first of them
  std::vector<TokenId> stop_tokens;       ///< end the text besides the vocabulary's own
  bool ignore_eos = false;                ///< tokens that end a text are never drawn
  /// Of draws; log probabilities stay the model's. Shared by copies of the options; null: none.
  std::shared_ptr<const std::vector<LogitBias>> logit_bias;
  /// What the text must be; tokens that it excludes are drawn by nobody. Log probabilities stay the
  /// model's. Shared by copies; null: anything. @pre not with ignore_eos
  std::shared_ptr<const Grammar> grammar;
  /// When the context is full, forget the older half and recompute the rest; of a prompt that is
  /// longer than the context, forget the front.
  bool context_shift = false;
  /// Asked first when the generated text fills the context: the text to go on with instead, which
  /// fits, or an empty one for "there is none". May be empty.
  std::function<std::vector<TokenId>()> shorten;
  bool continues_text = true;           ///< a leading space of the text is kept
  bool show_special = false;            ///< the text has the spellings of control tokens
  std::optional<std::size_t> logprobs;  ///< collect them, with that many alternatives
  /// Proposes tokens that are evaluated in one pass; changes no result, only its time. May be null.
  Speculation* speculation = nullptr;

  std::function<bool()> interrupted;  ///< asked between evaluations; may be empty
  Progress progress;                  ///< of the prefill; may be empty
  /// Of the text with its prompt: where messages end, ascending. Another text that goes on from
  /// there computes little of what is before (Session::set_checkpoints).
  std::vector<std::size_t> message_ends;
  /// Given every row of logits once, in order of position: [rows, n_vocab]. The last generated
  /// token is evaluated for it as well, so the rows depend on nothing but the tokens. May be empty.
  std::function<void(std::span<const float> rows)> on_logits;
  bool only_drawn = false;  ///< on_logits is given no rows before the prompt's last token's
};

/// What is told as the text grows.
struct GenerateEvent {
  std::optional<TokenId> id;           ///< nothing: text that was held back until the end
  std::string_view text;               ///< whole characters, safe to show; may be empty
  const Logprobs* logprobs = nullptr;  ///< if wanted and a token came
};

/// May end the generation with an error, which generate() returns (a closed stdout).
using GenerateSink = std::function<Status(const GenerateEvent&)>;

struct GenerateResult {
  std::vector<TokenId> ids;  ///< the generated tokens, without the one that ended the text
  std::string text;          ///< all event texts joined
  StopReason stop_reason = StopReason::kLength;
  std::size_t cropped = 0;         ///< tokens at the prompt's front that did not fit
  std::vector<Logprobs> logprobs;  ///< one an id, if wanted

  std::size_t prefill_tokens = 0;
  double prefill_seconds = 0;
  double first_token_seconds = 0;     ///< from the call to the first token, 0 if none came
  std::vector<double> token_seconds;  ///< between tokens: one fewer than tokens drawn
  std::size_t decode_passes = 0;      ///< over the weights, from the first token to the last
  std::size_t proposed = 0;           ///< tokens, by GenerateOptions::speculation
  std::size_t accepted = 0;           ///< of those
};

/// The positions at which what is stored of a text with `n_prompt` tokens is worth keeping: the
/// ends of messages, and what a text that begins with the same prompt reuses.
std::vector<std::size_t> checkpoints_of(std::span<const std::size_t> message_ends,
                                        std::size_t n_prompt);

/// Generates texts on one session, each after the last (a chat), reusing its cache. A session that
/// runs ahead of its text does so inside run() alone.
class Generator {
 public:
  /// @pre session.position() == 0 or hold() follows; nobody else moves the session meanwhile
  explicit Generator(Session& session) : session_(session) {}

  /// Takes `tokens` for the text so far, of which the session has evaluated the first ones already
  /// (a loaded cache). @pre session.position() <= tokens.size()
  void hold(std::span<const TokenId> tokens) { tokens_.assign(tokens.begin(), tokens.end()); }

  /// The text so far becomes `tokens`. What it shares with the text before stays evaluated, but for
  /// its last token, so that run({}) goes on behind it. Draws keep counting: none that is made
  /// later repeats an earlier one's number.
  void set_text(std::span<const TokenId> tokens);

  std::span<const TokenId> text() const { return tokens_; }
  /// The number of the next draw (Sampler): all tokens that the text has and ever had. To be set
  /// for a text that goes on with another's.
  std::uint64_t next_draw() const { return forgotten_ + tokens_.size(); }
  void set_next_draw(std::uint64_t number) {
    forgotten_ = number - std::min<std::uint64_t>(number, tokens_.size());
  }

  /// Appends `prompt` to everything before and generates what follows.
  /// Errors: kUsage for a prompt without tokens, or one that does not fit into the context (both
  /// numbers are named), kNonFinite for logits that cannot be drawn from, the sink's and the
  /// session's own.
  Result<GenerateResult> run(std::span<const TokenId> prompt, const GenerateOptions& options,
                             const GenerateSink& sink = {});

 private:
  std::size_t n_kept() const;
  std::size_t crop(std::vector<TokenId>& prompt) const;
  Status make_room(std::size_t n_new, bool context_shift);
  Result<std::span<const float>> evaluate_pending(const GenerateOptions& options);
  Status continue_text(const GenerateOptions& options, GenerationState& text);
  Status finish(const GenerateOptions& options, GenerationState& text);

  SpeculativeSession session_;
  std::vector<TokenId> tokens_;  ///< the text so far; the first session_.position() are evaluated
  std::uint64_t forgotten_ = 0;  ///< tokens dropped by context shifts
};

/// One text on a fresh session.
Result<GenerateResult> generate(Session& session, std::span<const TokenId> prompt,
                                const GenerateOptions& options, const GenerateSink& sink = {});

}  // namespace llm
