#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/batching/batch_runner.h"
#include "engine/batching/scheduler.h"
#include "engine/engine.h"
#include "engine/generation/embedding.h"
#include "engine/generation/generate.h"
#include "engine/generation/generation_state.h"
#include "engine/generation/logits_hash.h"

namespace llm {

/// A text to generate among others.
struct GenerationRequest {
  std::vector<TokenId> prompt;  ///< 1 or more, each in the vocabulary
  /// As for a text that is generated alone, with max_tokens. Callbacks, `speculation` (a text in
  /// progress has its own) and `context_shift` belong to those and are not read.
  GenerateOptions options;
  bool prompt_logprobs = false;  ///< with options.logprobs: of the prompt's tokens as well
  bool hash_logits = false;      ///< of every position, as llmrun --logits-hash
  bool hash_drawn = false;       ///< of those that tokens are drawn from, whoever had the others
  std::string scope = {};        ///< only texts of equal scopes share what is stored
  std::vector<float> adapters = {};  ///< as SequenceOptions::adapters
  /// The embedding of the prompt is wanted, and no logits. @pre max_tokens 0, neither of the above
  std::optional<EmbeddingOptions> embedding = {};
};

/// What was generated: the bits that it has alone.
struct GenerationOutput {
  GenerateResult result;                  ///< times from submission on
  std::vector<Logprobs> prompt_logprobs;  ///< one for each token but the first, if wanted
  std::optional<Logprobs> end_logprobs;   ///< of the token that ended the text, if there is one
  std::string logits_sha256;              ///< LogitsHash::all(), with hash_logits
  std::string drawn_logits_sha256;        ///< LogitsHash::drawn(), with either
  std::vector<float> embedding;           ///< if wanted
  /// Leading tokens of the prompt whose keys and values other texts had stored.
  std::size_t cached_tokens = 0;
  SequenceState::Lost lost = {};  ///< leading tokens that were stored once and are computed again
};

/// How much of a text's prompt is done.
struct PromptProgress {
  std::size_t n_tokens = 0;  ///< of the prompt
  std::size_t n_cached = 0;  ///< of those, GenerationOutput::cached_tokens so far
  std::size_t n_stored = 0;  ///< of those, cached or evaluated so far; never less than before
  double seconds = 0;        ///< since its evaluation began
};

/// A text while it is generated in steps that others decide: takes rows as they come,
/// also the same ones again after a preemption, and draws, decodes and stops as GenerationState
/// does.
class RunningRequest {
 public:
  using OnEvent = std::function<void(const GenerateEvent&)>;

  /// @param n_new  most_new_tokens() of the request
  /// @param on_event  called as the text grows; may be empty
  /// @param speculation  proposes tokens; may be null. Nothing is proposed where logits are
  /// hashed
  RunningRequest(const Model& model, GenerationRequest request, std::size_t n_new, OnEvent on_event,
                 std::unique_ptr<Speculation> speculation = nullptr);
  RunningRequest(const RunningRequest&) = delete;
  RunningRequest& operator=(const RunningRequest&) = delete;

  /// The most tokens after the prompt that a request evaluates or draws, for Scheduler::submit().
  static std::size_t most_new_tokens(const GenerationRequest& request, std::size_t context);

  /// Prompt and what was drawn; after propose(), and until take(), what is proposed, too.
  std::span<const TokenId> tokens() const { return tokens_; }
  /// Appends what may come after the text to tokens(). @return how many, at most `most`
  /// @param state  ProposalRequest::state
  std::size_t propose(const SequenceState* state, std::size_t most);
  /// Rows that were not seen yet and are wanted.
  BatchRunner::Rows rows_of(const StepPart& part) const;

  /// Leading tokens() whose rows nobody wants, the last one's not among them: others may have
  /// stored them.
  std::size_t n_skippable() const;

  /// The tokens up to `end` are stored, those from `begin` on by other texts.
  void note_adopted(std::size_t begin, std::size_t end);
  /// The tokens up to `end` are stored, the last ones by the step that is done.
  void note_evaluated(std::size_t end) { stored_ = std::max(stored_, end); }
  void note_lost(const SequenceState::Lost& lost) {
    if (lost.n_tokens > lost_.n_tokens) lost_ = lost;
  }

  /// Checks the rows and draws from the last one, but tells nobody: different texts may do so at
  /// once. @param rows  of the part's last tokens; valid until advance() when some were proposed
  void take(const StepPart& part, std::span<const float> rows);
  /// Goes on by what take() found. @param n_passes  over the weights so far
  /// @return whether the text is complete. Errors: kNonFinite; nothing more is drawn then
  Result<bool> advance(const StepPart& part, std::size_t n_passes);

  /// Of the tokens proposed in the last step, those that the text went on with.
  std::size_t n_accepted() const { return n_accepted_; }
  /// Tells the policy of proposals what the last step took. @pre all of its parts had one token
  /// left
  void note_step(double seconds);

  /// Session::set_checkpoints()
  std::vector<std::size_t> checkpoints() const {
    return checkpoints_of(request_.options.message_ends, request_.prompt.size());
  }
  /// What is told the rows of the final norm; nullptr: nothing is.
  Proposer* reader_of_rows() const {
    return speculation_ != nullptr && speculation_->source().reads_rows() ? &speculation_->source()
                                                                          : nullptr;
  }
  const std::string& scope() const { return request_.scope; }
  std::span<const float> adapters() const { return request_.adapters; }
  const GenerateResult& so_far() const { return text_.result; }
  /// Without its time.
  PromptProgress prompt_progress() const {
    const std::size_t n_tokens = request_.prompt.size();
    return {n_tokens, n_cached_, std::min(stored_, n_tokens), 0};
  }
  /// @pre advance() said that it is complete
  GenerationOutput finish() &&;

 private:
  Status take_new_rows(std::span<const float> rows, std::size_t first);

  GenerationRequest request_;
  bool hashes_;  ///< logits
  GenerateSink sink_;
  GenerationState text_;
  std::vector<TokenId> tokens_;
  std::unique_ptr<Speculation> speculation_;
  std::vector<TokenId> ahead_;   ///< what was proposed in the last step
  std::size_t n_accepted_ = 0;   ///< leading ones of them that are the text's
  std::span<const float> rows_;  ///< of the last step: its token's row, then those of ahead_
  std::size_t row_size_;         ///< n_vocab, or d_model
  std::size_t most_tokens_;      ///< of the prompt, drawn, and evaluated for the hash
  std::size_t next_row_;         ///< the first position whose row was not seen yet
  std::size_t rows_end_;         ///< rows of positions before it are wanted
  std::size_t stored_ = 0;       ///< the most tokens that ever were
  SequenceState::Lost lost_;
  std::size_t n_cached_ = 0;  ///< of the prompt, stored by others first
  Status taken_ = Ok{};       ///< what the last take() met
  std::vector<Logprobs> prompt_logprobs_;
  LogitsHash hash_;
  Embedding embedding_;
};

}  // namespace llm
