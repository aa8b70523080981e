#include "engine/serve/step_runner.h"

#include <utility>
#include <vector>

#include "base/check.h"

namespace llm {

Status StepRunner::run(const Step& step, const TokensOf& tokens_of, const TakeLogits& take_logits,
                       const RowsOf& rows_of) {
  for (const RequestId id : step.preempted) close(id);
  std::vector<Segment> segments;
  segments.reserve(step.parts.size());
  for (const StepPart& part : step.parts) {
    auto& sequence = sequences_[part.id];
    if (sequence == nullptr) {
      LLM_TRY(sequence, Executor::open(executor_, options_));
    }
    LLM_CHECK(sequence->position() == part.first);
    LogitRows rows = rows_of ? rows_of(part) : LogitRows::kNone;
    if (rows == LogitRows::kNone && part.wants_logits) rows = LogitRows::kLast;
    segments.push_back(
        {sequence.get(), tokens_of(part.id).subspan(part.first, part.n_tokens), rows});
  }
  LLM_RETURN_IF_ERROR(executor_->evaluate(segments));
  for (std::size_t i = 0; i < segments.size(); ++i) {
    if (segments[i].logits.empty()) continue;
    LLM_RETURN_IF_ERROR(take_logits(step.parts[i], segments[i].logits));
  }
  return Ok{};
}

}  // namespace llm
