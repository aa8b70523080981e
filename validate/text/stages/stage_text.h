#pragma once

#include <memory>
#include <optional>

#include "base/result.h"
#include "engine/engine.h"
#include "validate/reference/dump/dump.h"
#include "validate/reference/gates/layer_check.h"
#include "validate/text/stages/stages.h"

namespace llm {

/// What the greedy run of the text stage gave.
struct StageText {
  bool passed = false;
  std::size_t agreed = 0;  ///< leading tokens that are the reference's
  std::string words;       ///< how many agreed; the first that did not, with both choices
};

/// Generates after the reference's prompt as llmrun does with --temp 0. Where the choices differ
/// although the reference's logits of both are within twice `noise`, they are a tie, and what
/// follows is not compared. Nothing when the reference has no logits.
/// @param noise  the largest difference of a logit from the reference's
/// Errors: those of generate(), and of reading the dump.
Result<std::optional<StageText>> check_text(const std::shared_ptr<const Model>& model, KvType kv,
                                            const Dump& reference, double noise);

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
