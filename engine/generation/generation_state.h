#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/generation/generate.h"
#include "engine/generation/stop_matcher.h"
#include "tokenizer/stream_decoder.h"

namespace llm {

/// One text as it grows, from rows of logits: what is drawn, what may be shown already, and when
/// and why it ends. Generating alone, serving and replaying feed it; nobody else decides that.
class GenerationState {
 public:
  /// @param options, sink  outlive this
  GenerationState(const Tokenizer& tokenizer, const GenerateOptions& options,
                  const GenerateSink& sink);

  /// Draws from a row the token that follows `past`, and keeps it. Tells nobody, so that different
  /// texts may do so at once. Nothing is drawn for a text that has ended or has all its tokens.
  /// @param number  of the draw. Errors: those of draw_token() and GrammarState::mask()
  Status draw(std::span<const float> row, std::span<const TokenId> past, std::uint64_t number);
  /// Keeps a token that is known, as if it had been drawn.
  void take(TokenId id) {
    drawn_.reset();
    if (!has_ended_ && !has_all()) drawn_ = Drawn{id, {}};
  }
  /// What may follow `tokens`, as far as its tokens would be evaluated one by one: at most `most`,
  /// none that ends the text, none that would not be evaluated.
  /// @param number  of the next draw
  /// @param state  ProposalRequest::state
  std::vector<TokenId> propose(Speculation& speculation, std::span<const TokenId> tokens,
                               const SequenceState* state, std::uint64_t number,
                               std::size_t most) const;
  /// What draw() kept.
  std::optional<TokenId> drawn() const { return drawn_ ? std::optional(drawn_->id) : std::nullopt; }
  /// Appends what was drawn to `tokens` and shows it; or the text ends: by that token, a stop
  /// string or its length. @param n_passes  over the weights so far. Errors: the sink's, and
  /// GrammarState::accept()'s
  Status advance(std::vector<TokenId>& tokens, std::size_t n_passes);
  /// Ends it for a reason that no row gives.
  void end(StopReason reason);
  bool has_ended() const { return has_ended_; }
  /// Shows what was held back for a character or a stop string that did not come.
  Status finish();

  void note_prefill(std::size_t n_tokens);

  GenerateResult result;
  std::optional<Logprobs> end_logprobs;  ///< of the token that ended the text, if wanted

 private:
  using Clock = std::chrono::steady_clock;
  struct Drawn {
    TokenId id;
    std::optional<Logprobs> logprobs;
  };

  bool has_all() const { return options_.max_tokens && result.ids.size() >= *options_.max_tokens; }
  void note_draw(std::size_t n_passes);
  Status show(std::optional<TokenId> id, const std::string& text, const Logprobs* logprobs);

  const Tokenizer& tokenizer_;
  const GenerateOptions& options_;
  const GenerateSink& sink_;
  StreamDecoder decoder_;
  StopMatcher matcher_;
  std::optional<GrammarState> grammar_;  ///< behind the tokens of `result`
  std::optional<Drawn> drawn_;
  bool has_ended_ = false;
  Clock::time_point started_ = Clock::now();
  Clock::time_point last_draw_;
  std::size_t n_drawn_ = 0;
  std::size_t first_pass_ = 0;
};

}  // namespace llm
