#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "engine/forward/probe.h"
#include "engine/state/sequence_state.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocab_spec.h"

namespace llm {

/// Which rows of logits an evaluation returns.
enum class LogitRows { kNone, kLast, kAll };

/// One sequence of tokens, as text generation and the checks see it. The real one is Sequence.
class Session {
 public:
  virtual ~Session() = default;

  virtual const Tokenizer& tokenizer() const = 0;
  virtual std::size_t n_vocab() const = 0;

  /// Tokens evaluated so far; the next one has this position.
  virtual std::size_t position() const = 0;
  /// The most tokens it can hold.
  virtual std::size_t context() const = 0;
  /// The most tokens of one pass over the weights. evaluate() accepts more; a caller that wants to
  /// be interruptible passes no more.
  virtual std::size_t batch() const = 0;

  /// Appends `tokens` to the sequence. Prefill is a call with many tokens, decode a call with
  /// one.
  /// @return the wanted rows of logits, [rows, n_vocab], valid until the next call
  /// Errors: kUsage for a token id outside the vocabulary; kResource when position() + tokens
  /// exceeds context(); kNonFinite naming layer, tap and position when logits are NaN or Inf. After
  /// an error the session is where it was before the call.
  virtual Result<std::span<const float>> evaluate(std::span<const TokenId> tokens,
                                                  LogitRows rows) = 0;

  /// Forgets every position from `n_positions` on. @pre n_positions <= position()
  virtual void truncate(std::size_t n_positions) = 0;
  /// The position from which it can continue without recomputing when it is truncated to
  /// `n_positions`: that one, or fewer, because keys and values before a window are not kept.
  virtual std::size_t reusable(std::size_t n_positions) const { return n_positions; }

  /// Positions, in ascending order, from which a later text may go on otherwise: what it takes to
  /// do so without computing much is kept while the session passes them. Never changes a result.
  virtual void set_checkpoints(std::span<const std::size_t> positions) {
    static_cast<void>(positions);
  }

  /// What the layers keep of the sequence, for those who propose tokens; nullptr: nothing is shown.
  virtual const SequenceState* state() const { return nullptr; }

  /// Sends activations of later evaluations to `sink` (nullptr: none). The sink must outlive this
  /// use.
  virtual void set_probe(ProbeSink* sink) = 0;
};

}  // namespace llm
