#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/session.h"

namespace llm {

/// One pass over a single token and what was proposed to follow it.
struct LookaheadPass {
  std::size_t proposed = 0;  ///< tokens evaluated behind the first
  std::size_t accepted = 0;  ///< of those, leading ones that the text went on with
  bool refuted = false;      ///< it went on otherwise behind them, or the pass failed
  double seconds = 0;        ///< 0: it failed
};

/// A session that runs ahead. In the pass of a single token it evaluates what is proposed to follow
/// it; when the next call brings the proposed token, its row of logits is there without another
/// pass. Any other call first forgets what is left of the proposal.
///
/// What it shows, position() and every row, is what `session` would show had nothing been proposed:
/// a row depends on the tokens before it and on nothing else (docs/numerics.md). A proposal whose
/// evaluation fails is dropped and the token evaluated alone, so that errors are those, too.
class SpeculativeSession final : public Session {
 public:
  /// At most `most` tokens that may follow the one that is about to be evaluated.
  using Propose = std::function<std::vector<TokenId>(std::size_t most)>;
  using Note = std::function<void(const LookaheadPass& pass)>;

  /// @param session  moved by nobody else between the calls, but for truncate(position()) or less
  explicit SpeculativeSession(Session& session) : session_(session) {}

  /// From now on `propose` is asked with each single token whose logits are wanted, and `note` told
  /// how each such pass ended. Without `propose` nothing more is proposed; what is evaluated
  /// already may still serve. Either may be empty.
  void set_hooks(Propose propose, Note note);
  /// Leaves `session` at position(), so that others may look at it, and forgets the hooks.
  void settle();

  std::size_t passes() const { return passes_; }      ///< evaluations so far
  std::size_t proposed() const { return proposed_; }  ///< tokens so far
  std::size_t accepted() const { return accepted_; }  ///< of those

  const Tokenizer& tokenizer() const override { return session_.tokenizer(); }
  std::size_t n_vocab() const override { return session_.n_vocab(); }
  std::size_t position() const override { return session_.position() - ahead_.size() + n_used_; }
  std::size_t context() const override { return session_.context(); }
  std::size_t batch() const override { return session_.batch(); }
  Result<std::span<const float>> evaluate(std::span<const TokenId> tokens, LogitRows rows) override;
  void truncate(std::size_t n_positions) override;
  std::size_t reusable(std::size_t n_positions) const override {
    return session_.reusable(n_positions);
  }
  void set_checkpoints(std::span<const std::size_t> positions) override {
    session_.set_checkpoints(positions);
  }
  const SequenceState* state() const override { return session_.state(); }
  /// A probe sees every position once, so nothing is proposed while there is one.
  void set_probe(ProbeSink* sink) override;

 private:
  std::vector<TokenId> ask() const;
  /// @param refuted  the text goes on, and not as what is left of the proposal
  void end_pass(bool refuted);
  Result<std::span<const float>> run_pass(TokenId token, LogitRows rows,
                                          std::vector<TokenId> proposal);

  Session& session_;
  Propose propose_;
  Note note_;
  ProbeSink* probe_ = nullptr;
  std::vector<TokenId> ahead_;         ///< tokens that session_ has evaluated as proposed
  std::size_t n_used_ = 0;             ///< leading ones of them that are the text's
  std::span<const float> rows_;        ///< of the last pass: its token's row, then those of ahead_
  std::optional<LookaheadPass> pass_;  ///< the last one, until its end is known
  std::size_t passes_ = 0;
  std::size_t proposed_ = 0;
  std::size_t accepted_ = 0;
};

}  // namespace llm
