#include "engine/batching/batch_runner.h"

#include <vector>

#include "base/check.h"

namespace llm {

BatchRunner::Adopted BatchRunner::adopt(RequestId id, std::size_t n_stored,
                                        std::span<const TokenId> tokens, const std::string& scope,
                                        std::span<const float> adapters) {
  if (n_stored == 0) close(id);  // what it held before a preemption
  Held& held = sequences_.try_emplace(id, options_).first->second;
  if (held.open == nullptr) {
    held.options.scope = scope;
    held.options.adapters.assign(adapters.begin(), adapters.end());
  }
  const auto sequence = open(held);
  if (!sequence.ok()) return {.n_stored = n_stored};
  const std::size_t n_loaded = (*sequence)->n_loaded();
  const std::size_t n = (*sequence)->adopt(tokens);
  return {.n_stored = n,
          .n_loaded = (*sequence)->n_loaded() - n_loaded,
          .lost = n_stored == 0 ? (*sequence)->lost(tokens) : SequenceState::Lost{}};
}

Result<Sequence*> BatchRunner::open(Held& held) {
  if (held.open == nullptr) {
    LLM_TRY(held.open, Executor::open(executor_, held.options));
  }
  return held.open.get();
}

Status BatchRunner::run(const Step& step, const TokensOf& tokens_of, const TakeLogits& take_logits,
                        const RowsOf& rows_of) {
  for (const RequestId id : step.preempted) close(id);
  std::vector<Segment> segments;
  segments.reserve(step.parts.size());
  for (const StepPart& part : step.parts) {
    LLM_TRY(Sequence* const sequence,
            open(sequences_.try_emplace(part.id, options_).first->second));
    LLM_CHECK(sequence->position() == part.first);
    Rows rows = rows_of ? rows_of(part) : Rows{};
    if (rows.which == LogitRows::kNone && part.wants_logits) rows.which = LogitRows::kLast;
    if (part.n_proposed > 0) rows.which = LogitRows::kAll;
    const std::size_t n_tokens = part.n_tokens + part.n_proposed;
    const auto tokens = tokens_of(part.id).subspan(part.first, n_tokens);
    segments.push_back({sequence, tokens, rows.which, rows.normed});
  }
  LLM_RETURN_IF_ERROR(executor_->evaluate(segments));
  std::vector<std::size_t> with_logits;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    if (!segments[i].logits.empty()) with_logits.push_back(i);
  }
  std::vector<Status> taken(with_logits.size(), Ok{});
  executor_->for_each(with_logits.size(), [&](std::size_t i) {
    const std::size_t part = with_logits[i];
    taken[i] = take_logits(step.parts[part], segments[part].logits);
  });
  for (const Status& status : taken) LLM_RETURN_IF_ERROR(status);
  return Ok{};
}

}  // namespace llm
