#pragma once

#include <memory>
#include <optional>

#include "base/result.h"
#include "engine/engine.h"
#include "validate/reference/dump/dump.h"
#include "validate/reference/gates/layer_check.h"

namespace llm {

/// Logits of a mode that rounds activations, against a reference's.
struct StageLogits {
  double error = 0;  ///< NMSE against the reference; +inf where a side is not finite
  double limit = 0;  ///< 10 x the NMSE between the model's own logits in this mode and in f32
  double noise = 0;  ///< the largest difference between those two
};

/// What codes of int8 cost this model is known from itself, so logits that are further away than
/// ten times that are not of this model: of one scale, one-hot, of other tokens.
/// @param model  in any mode. Nothing where the reference has no logits.
/// Errors: those of Session; of reading the dump. Cost: the tokens twice by the fast path.
Result<std::optional<StageLogits>> check_logits(const std::shared_ptr<const Model>& model,
                                                ComputeMode mode, const Dump& reference);

}  // namespace llm
