#pragma once

#include <span>
#include <vector>

#include "engine/model/hyper_parameters.h"
#include "engine/model/rope.h"
#include "validate/report/report.h"

namespace llm {

/// Checks the definition itself: its elementary functions against the same mathematics written once
/// more in f64 with the C library, over the whole range of their arguments. What kernels and
/// definition share, and so compute wrong alike, shows here and in no comparison of bits.
///
/// exp, every activation, RMSNorm, RoPE and its angles at the model's own parameters, attention of
/// one chunk and of several merged, gates, convolution and states of Gated DeltaNets, rounding to
/// f16, quantization of activations, products of every type. Each has a bound derived from the
/// roundings that docs/numerics.md prescribes, in units u = 2^-24, the relative error of one
/// rounding; the detail gives the largest share of its bound that was seen.
///
/// @param ropes  the angles of config.ropes
/// Cost: a second.
std::vector<CheckResult> check_definition(const HyperParameters& config,
                                          std::span<const Rope> ropes,
                                          std::span<const float> rope_divisors);

}  // namespace llm
