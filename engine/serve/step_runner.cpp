#include "engine/serve/step_runner.h"

#include <utility>
#include <vector>

#include "base/check.h"

namespace llm {

Status StepRunner::run(const Step& step, const TokensOf& tokens_of, const TakeLogits& take_logits) {
  for (const RequestId id : step.preempted) close(id);
  std::vector<Segment> segments;
  segments.reserve(step.parts.size());
  for (const StepPart& part : step.parts) {
    auto& sequence = sequences_[part.id];
    if (sequence == nullptr) {
      LLM_TRY(sequence, Executor::open(executor_, options_));
    }
    LLM_CHECK(sequence->position() == part.first);
    segments.push_back({sequence.get(), tokens_of(part.id).subspan(part.first, part.n_tokens),
                        part.wants_logits ? LogitRows::kLast : LogitRows::kNone});
  }
  LLM_RETURN_IF_ERROR(executor_->evaluate(segments));
  for (std::size_t i = 0; i < segments.size(); ++i) {
    if (!step.parts[i].wants_logits) continue;
    LLM_RETURN_IF_ERROR(take_logits(step.parts[i].id, segments[i].logits));
  }
  return Ok{};
}

}  // namespace llm
