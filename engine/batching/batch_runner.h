#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"
#include "engine/batching/scheduler.h"
#include "engine/executor.h"

namespace llm {

/// Evaluates a Scheduler's steps on an Executor: holds one Sequence for each request that runs.
/// With `kv_pages`, `context` and the pool's groups of the executor as in the scheduler's options,
/// the executor has nothing to decide: a step fits its pages. With `batch` not below step_tokens a
/// step is one pass.
///
/// One thread at a time.
class BatchRunner {
 public:
  /// All known tokens of a request: its prompt, then what was generated; then what is proposed.
  using TokensOf = std::function<std::span<const TokenId>(RequestId)>;
  /// Rows of a part's last tokens, the proposed ones the last of them: logits, [rows, n_vocab], at
  /// least one, and one before each proposed token; or those of the final norm, [rows, d_model].
  /// Valid until the next run(). Called once for each part that has any, by several threads at
  /// once.
  using TakeLogits = std::function<Status(const StepPart&, std::span<const float>)>;
  struct Rows {
    LogitRows which = LogitRows::kNone;
    bool normed = false;  ///< as Segment::normed
  };
  /// Which rows of a part without proposed tokens are wanted. One that wants_logits gets its last
  /// row at least.
  using RowsOf = std::function<Rows(const StepPart&)>;

  /// @param options  of every sequence
  explicit BatchRunner(std::shared_ptr<Executor> executor, SequenceOptions options = {})
      : executor_(std::move(executor)), options_(options) {}

  struct Adopted {
    std::size_t n_stored = 0;       ///< now
    std::size_t n_loaded = 0;       ///< of those new ones, from disk
    SequenceState::Lost lost = {};  ///< of a request that begins
  };
  /// What Scheduler::StoredPrefix asks: takes over what others have published of `tokens`, the
  /// leading ones of a request. @param n_stored  what it has; 0: it begins, also once more
  /// @param scope, adapters  those of SequenceOptions
  /// @pre options.share_prefix, or there is no need to ask
  Adopted adopt(RequestId id, std::size_t n_stored, std::span<const TokenId> tokens,
                const std::string& scope = "", std::span<const float> adapters = {});

  /// Errors: as Executor::evaluate() and of `take_logits`.
  /// @param rows_of  empty: the last rows of parts that want logits
  Status run(const Step& step, const TokensOf& tokens_of, const TakeLogits& take_logits,
             const RowsOf& rows_of = {});

  /// Session::set_checkpoints() of a request that was adopted.
  void set_checkpoints(RequestId id, std::span<const std::size_t> positions) {
    if (Sequence* const sequence = sequences_.at(id).open.get())
      sequence->set_checkpoints(positions);
  }

  /// Sequence::set_on_normed() of a request that was adopted.
  void set_on_normed(RequestId id, Sequence::OnNormed on_normed) {
    if (Sequence* const sequence = sequences_.at(id).open.get())
      sequence->set_on_normed(std::move(on_normed));
  }

  /// What a request has stored; nullptr where it has not begun.
  const SequenceState* state(RequestId id) const {
    const auto held = sequences_.find(id);
    return held == sequences_.end() || !held->second.open ? nullptr : held->second.open->state();
  }

  /// Forgets what a request has stored behind `n_positions`: proposed tokens that were wrong.
  void keep(RequestId id, std::size_t n_positions) {
    sequences_.at(id).open->truncate(n_positions);
  }

  /// Gives back what a request holds, if anything: it is done, or was cancelled.
  void close(RequestId id) { sequences_.erase(id); }

  const Executor& executor() const { return *executor_; }

 private:
  struct Held {
    SequenceOptions options;
    std::unique_ptr<Sequence> open = {};  ///< null: not yet
  };
  /// Opens it if it is not open.
  Result<Sequence*> open(Held& held);

  std::shared_ptr<Executor> executor_;
  SequenceOptions options_;
  std::map<RequestId, Held> sequences_;
};

}  // namespace llm
