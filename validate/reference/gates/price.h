#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "validate/reference/diff/layer_diff.h"
#include "validate/reference/dump/dump.h"
#include "validate/reference/gates/drift.h"
#include "validate/reference/locate/op_replay.h"

namespace llm {

/// What the comparison of the logits says in figures: NMSE beside the expected one, KL divergence,
/// agreement of the most likely token; a second line where the cost is unusual. Nothing where a
/// side has no logits.
/// @param row  the logits' row of the comparison; its limit, if any, is the expected NMSE
Result<std::vector<std::string>> logits_notes(const Dump& run, const Dump& reference,
                                              const LayerDiffRow& row);

/// The errors of products with rounded activations in units of the noise predicted for them, from
/// the least to the largest; empty without such products.
std::string noise_note(const Replay& replay, const OpNoise& errors, const OpNoise& predicted);

}  // namespace llm
