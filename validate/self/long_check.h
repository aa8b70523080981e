#pragma once

#include "base/result.h"
#include "validate/self/mode_plan.h"

namespace llm {

/// Long texts of drawn tokens, on as many of the first layers as a second or two of the fast
/// kernels allow (small models: all; two at least), whatever context the model was trained for:
///
/// - positions past three chunks of 256 keys, and past 2,048: windows of tokens at 0, 256, 512, 768
///   and 2,048 by the definition; prefill, batches of 337, decode and every instruction set against
///   them. The windows' earlier keys and values are the fast prefill's.
/// - one call of 337 tokens, past ten blocks of attention and every tile, with an odd rest, against
///   batches of 32 and decode (by its last row alone where a row of logits costs more than the
///   layers; every row is seen by the windows, through its keys and values);
/// - truncation to every length modulo 16, and from 240 to 257: other tokens are fed and forgotten,
///   then one token alone, then three at once.
///
/// Batches of 337, decode and truncation follow each other on one sequence; where that differs,
/// each is run by itself to say which. Where prefill leaves the definition, the check names the
/// first op, and the other paths are compared with the definition alone. Errors: those of Executor
/// and Sequence but kNonFinite, which is a failed check.
Result<PartOutcome> check_long_texts(const ModePlan& plan);

}  // namespace llm
