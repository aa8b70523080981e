#include "engine/generation/speculative_session.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace llm {

void SpeculativeSession::set_hooks(Propose propose, Note note) {
  propose_ = std::move(propose);
  note_ = std::move(note);
}

void SpeculativeSession::settle() {
  end_pass(false);
  set_hooks({}, {});
}

void SpeculativeSession::truncate(std::size_t n_positions) {
  end_pass(false);
  session_.truncate(n_positions);
}

void SpeculativeSession::set_probe(ProbeSink* sink) {
  probe_ = sink;
  session_.set_probe(sink);
}

Result<std::span<const float>> SpeculativeSession::evaluate(std::span<const TokenId> tokens,
                                                            LogitRows rows) {
  const bool is_step = tokens.size() == 1 && rows != LogitRows::kNone;
  if (is_step && n_used_ < ahead_.size() && tokens[0] == ahead_[n_used_]) {
    ++n_used_;
    ++accepted_;
    return rows_.subspan(n_used_ * n_vocab(), n_vocab());
  }
  end_pass(is_step);
  if (is_step && propose_) return run_pass(tokens[0], rows, ask());
  ++passes_;
  return session_.evaluate(tokens, rows);
}

void SpeculativeSession::end_pass(bool refuted) {
  if (pass_) {
    pass_->accepted = n_used_;
    pass_->refuted = refuted && n_used_ < ahead_.size();
    if (note_) note_(*pass_);
    pass_.reset();
  }
  if (n_used_ < ahead_.size()) session_.truncate(position());
  ahead_.clear();
  n_used_ = 0;
}

std::vector<TokenId> SpeculativeSession::ask() const {
  // The token itself takes a place of the batch and a position.
  const std::size_t room = std::min(batch(), context() - std::min(context(), position()));
  if (probe_ != nullptr || room < 2) return {};
  std::vector<TokenId> proposal = propose_(room - 1);
  proposal.resize(std::min(proposal.size(), room - 1));
  return proposal;
}

Result<std::span<const float>> SpeculativeSession::run_pass(TokenId token, LogitRows rows,
                                                            std::vector<TokenId> proposal) {
  std::vector<TokenId> tokens = {token};
  tokens.insert(tokens.end(), proposal.begin(), proposal.end());
  const auto started = std::chrono::steady_clock::now();
  const auto logits = session_.evaluate(tokens, proposal.empty() ? rows : LogitRows::kAll);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - started;
  ++passes_;
  proposed_ += proposal.size();
  pass_ = {.proposed = proposal.size(), .seconds = time.count()};
  if (!logits.ok()) {
    pass_.reset();
    if (proposal.empty()) return logits;
    if (note_) note_({.proposed = proposal.size(), .refuted = true});
    return run_pass(token, rows, {});
  }
  ahead_ = std::move(proposal);
  rows_ = *logits;
  return rows_.first(n_vocab());
}

}  // namespace llm
