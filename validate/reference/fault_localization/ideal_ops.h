#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/model/hyper_parameters.h"
#include "quant/formats/activations.h"
#include "validate/reference/dump/dump.h"
#include "validate/reference/fault_localization/op_replay.h"

namespace llm {

/// Half the distance of neighbouring f32 numbers around 1: what one rounding costs at most.
inline constexpr double kUnit = 0x1p-24;
/// Standard deviations of rounding noise that count as noise.
inline constexpr double kDeviations = 6;

/// What an op that rounds its inputs should give: evaluated in f64 on inputs that are rounded as
/// docs/numerics.md says. Rounding is written here a second time and shares nothing with the
/// definition, so that a fault which definition and engine have in common shows.
struct IdealOutput {
  TapMatrix output;
  /// NMSE that evaluation in f32 may cost each row, where more than usual; empty: nowhere.
  std::vector<double> row_noise;
};

/// The products with quantized activations and attention, of the model, compute mode and cache of
/// `replay`, on the taps of `inputs`, for the tokens `rows`. Nothing for other ops, and where an
/// input is missing.
/// Errors: those of engine_order_tap().
/// Cost: a product costs rows * weights operations in f64.
Result<std::optional<IdealOutput>> ideal_output(const Replay& replay, const Dump& inputs, int layer,
                                                std::string_view tap, TokenRows rows = {});

/// NMSE that the f32 chains of a product may cost each row of its output `y`, where terms cancel:
/// the partial sums of K terms are about as large as the root of the sum of their squares, and each
/// is rounded. With quantized activations, the terms of a scale and of a minimum are added apart,
/// and both are about as large as the largest weight that shares them. `format` is that of the
/// activations. Cost: dequantizes each matrix once.
/// @param divisor  of the products, to give y
std::vector<double> product_noise(std::span<const reference::Product> products,
                                  ActivationFormat format, const TapMatrix& y, double divisor);

/// NMSE that f32 may cost each row of a delta rule (docs/tolerances.md), where what a query finds
/// in a state is small beside the state. Nothing where an input of `inputs` is missing.
/// @param y  what the op should give for the tokens `rows`
/// @pre tap.op == TapOp::kDeltaRule. Errors: those of engine_order_tap().
/// Cost: all states in f64, for all tokens: tokens * n_v_heads * k_dim * v_dim operations.
Result<std::optional<std::vector<double>>> delta_noise(const Replay& replay, const Dump& inputs,
                                                       int layer, const Tap& tap, TokenRows rows,
                                                       const TapMatrix& y);

/// Values that share a scale, by the rules of the contract: multiples of one step.
struct RoundedGroup {
  std::vector<double> codes;
  float step;
};
RoundedGroup round_group(std::span<const float> x);

/// What the definition's quantizer gives otherwise than round_group(), of the first block that
/// differs; empty: nothing. @pre x.size() is a multiple of the format's block size
std::string quantization_fault(ActivationFormat format, std::span<const float> x);

/// One row of activations as its format keeps it, by the rules of the contract: a step for each
/// block, and values that are multiples of it.
struct RoundedRow {
  std::vector<double> values;
  std::vector<double> steps;  ///< one per block of activation_block_size(format)
};
/// @pre x.size() is a multiple of the block size; format is not kF32
RoundedRow round_activations(ActivationFormat format, std::span<const float> x);

/// Sum of squares.
double energy_of(std::span<const float> values);

/// Row r of a matrix in f32, times its scale. @pre out.size() == w.n_cols()
void read_row(const PackedMatrix& w, std::size_t r, std::span<float> out);

/// A product of doubles in eight chains, which a compiler keeps in registers.
double dot(const double* x, const double* y, std::size_t n);

/// x rounded to binary16, to nearest even, as a number; infinite beyond 65520.
double round_to_half(float x);

/// Attention in f64 on q, K and V of the taps q_rope, k_rope and v, rounded as a cache of type `kv`
/// has them; with q8, q and the weights of keys as well. `q` holds the tokens `rows` alone.
/// `sinks`, of each head, may be empty.
/// @pre finite inputs
IdealOutput ideal_attention(const AttentionSpec& spec, KvType kv, const TapMatrix& q,
                            const TapMatrix& k, const TapMatrix& v, TokenRows rows,
                            std::span<const float> sinks = {});

}  // namespace llm
