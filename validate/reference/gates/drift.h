#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "validate/reference/diff/layer_diff.h"
#include "validate/reference/dump/dump.h"
#include "validate/reference/fault_localization/op_replay.h"

namespace llm {

/// Errors that ops make by themselves: NMSE by (layer, tap).
using OpNoise = std::map<std::pair<int, std::string>, double>;

/// What rounding is expected to add to each op: quantized activations in products
/// (IdealOutput::rounding_energy), a cache in f16 to keys and values. Found from the weights and
/// the taps of `inputs`, without running an op.
/// @param replay  compute mode and cache whose noise it is
/// Errors: those of engine_order_tap(). Cost: dequantizes every matrix once.
Result<OpNoise> rounding_noise(const Replay& replay, const Dump& inputs);

/// What f32 arithmetic is expected to add to each op that sums over many inputs: the partial sums
/// of a chain of n products are off by a uniform +-2^-24 each, its result by n / 6 of the squares.
OpNoise arithmetic_noise(const Replay& replay);

/// How far noise travels in a model.
struct DriftInput {
  std::shared_ptr<const Model> model;  ///< under Compute::kF32
  std::span<const TokenId> tokens;
  std::span<const std::int64_t> step_ptr;  ///< as for record_activations()
  const Dump& clean;                       ///< an undisturbed run of the same
  OpNoise noise;                           ///< an op without noise gets one rounding to f32
};

/// Runs the model with random noise (seeded, normally distributed) added to the output of every op
/// and returns the NMSE that each tap has against the clean run, the largest of `n_runs` runs. A
/// model that is deep, sharp or full of outliers carries errors further than others: this is by how
/// much, measured. Noise of norms and of rotated keys, whose taps are read too early
/// (ProbeSink::tap), is added where their readers' outputs are.
/// Errors: those of record_activations().
Result<OpNoise> measure_drift(const DriftInput& input, int n_runs);

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
