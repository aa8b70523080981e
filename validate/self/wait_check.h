#pragma once

#include "base/result.h"
#include "validate/self/mode_plan.h"

namespace llm {

/// Teams of 2, 3 and 7 threads that sleep at random around every barrier (RandomWaits), so that a
/// missing one shows: prefill of 5 and of 33 tokens, decode after it, several times, on the first
/// layers (up to the first whose products take activations in different formats, two at least),
/// against one thread, which waits for none. Then activations as a probe sees them.
/// Errors: those of Executor and Sequence but kNonFinite, which is a failed check.
Result<PartOutcome> check_waits(const ModePlan& plan);

}  // namespace llm
