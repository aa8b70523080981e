#pragma once

#include <optional>
#include <vector>

#include "base/result.h"
#include "engine/forward/activation_points.h"
#include "validate/reference/dump/dump.h"
#include "validate/reference/fault_localization/op_replay.h"

namespace llm {

/// NMSE that f32 may cost each row of a delta rule (docs/tolerances.md), where what a query finds
/// in a state is small beside the state. Nothing where an input of `inputs` is missing.
/// @param y  what the op should give for the tokens `rows`
/// @pre tap.op == TapOp::kDeltaRule. Errors: those of engine_order_tap().
/// Cost: all states in f64, for all tokens: tokens * n_v_heads * k_dim * v_dim operations.
Result<std::optional<std::vector<double>>> delta_noise(const Replay& replay, const Dump& inputs,
                                                       int layer, const Tap& tap, TokenRows rows,
                                                       const TapMatrix& y);

}  // namespace llm
