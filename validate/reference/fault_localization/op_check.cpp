#include "validate/reference/fault_localization/op_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

#include "validate/reference/fault_localization/ideal_ops.h"

namespace llm {
namespace {

using MaybeOutput = std::optional<OpOutput>;

/// f32 arithmetic on both sides: a chain of n additions is off by about sqrt(n / 6) * 2^-24 of its
/// result, so 2^15 of them give an NMSE of 2e-11.
constexpr double kArithmetic = 1e-10;
/// A reference in f32 rounds angles, which grow with the position, and frequencies.
constexpr double kAngleUnits = 4;

double rope_limit(std::size_t position) {
  const double angle = kAngleUnits * static_cast<double>(position) * 0x1p-24;
  return std::max(kArithmetic, angle * angle);
}

/// Raises limits to the noise of rows where there is more than usual.
void allow(std::span<const double> row_noise, std::string why, OpOutput& output) {
  for (std::size_t i = 0; i < row_noise.size(); ++i) {
    if (!(row_noise[i] > output.row_limits[i])) continue;
    output.row_limits[i] = row_noise[i];
    output.why = why;
  }
}

/// @pre actual and expected are there
Status set_limits(const Replay& replay, const Dump& inputs, int layer, const Tap& tap,
                  TokenRows rows, OpOutput& output) {
  output.row_limits.assign(output.actual.rows, kArithmetic);
  output.why = "f32 arithmetic";
  if (tap.op == TapOp::kRope) {
    std::vector<double> noise;
    for (std::size_t i = 0; i < output.actual.rows; ++i)
      noise.push_back(rope_limit(rows.empty() ? i : rows[i]));
    allow(noise, "f32 arithmetic, angles in f32", output);
  }
  if (tap.op == TapOp::kDeltaRule || tap.op == TapOp::kScan) {
    LLM_TRY(const auto noise, delta_noise(replay, inputs, layer, tap, rows, output.expected));
    if (noise) allow(*noise, "f32 arithmetic of terms that cancel", output);
  }
  if (tap.op != TapOp::kProduct) return Ok{};
  const auto from = input_of(tap, layer, replay.config());
  LLM_TRY(auto x, engine_order_tap(inputs, from->layer, from->row->name, replay.config()));
  if (!x) return Ok{};
  LLM_TRY(const auto products,
          replay.products(inputs, layer, tap, select_rows(*std::move(x), rows), rows));
  if (!products) return Ok{};
  allow(product_noise(*products, *replay.product_format(layer, tap.name), output.expected,
                      static_cast<double>(replay.definition().divisor(tap))),
        "f32 arithmetic of terms that cancel", output);
  return Ok{};
}

}  // namespace

KvType cache_of(const DumpMeta& reference) {
  return kv_from_name(reference.kv).value_or(KvType::kF32);
}

bool rounds_alike(const DumpMeta& reference, Compute compute, KvType kv) {
  return (reference.compute == "int8") == (compute == Compute::kInt8) && cache_of(reference) == kv;
}

Result<std::optional<OpOutput>> op_on_reference(const Replay& replay, const Dump& reference,
                                                int layer, const Tap& tap, TokenRows rows) {
  OpOutput out;
  LLM_TRY(auto actual, replay.run(reference, layer, tap.name, rows));
  if (!actual) return MaybeOutput();
  out.actual = *std::move(actual);
  const bool alike = rounds_alike(reference.meta(), replay.model()->compute(), replay.kv());
  // Attention's noise is wanted in any case.
  std::optional<IdealOutput> ideal;
  if (!alike || tap.op == TapOp::kAttention) {
    LLM_TRY(ideal, ideal_output(replay, reference, layer, tap.name, rows));
  }
  const bool is_rounded = replay.kv() != KvType::kF32 || tap.op != TapOp::kAttention;
  if (ideal && is_rounded && !alike) {
    out.expected = std::move(ideal->output);
  } else {
    LLM_TRY(auto expected, engine_order_tap(reference, layer, tap.name, replay.config()));
    if (!expected) return MaybeOutput();
    out.expected = select_rows(*std::move(expected), rows);
  }
  LLM_RETURN_IF_ERROR(set_limits(replay, reference, layer, tap, rows, out));
  if (ideal) allow(ideal->row_noise, "f32 arithmetic of large scores", out);
  return MaybeOutput(std::move(out));
}

Result<std::optional<OpOutput>> op_of_run(const Replay& replay, const Dump& run, int layer,
                                          const Tap& tap, TokenRows rows) {
  OpOutput out;
  LLM_TRY(auto expected, replay.run(run, layer, tap.name, rows));
  LLM_TRY(auto actual, engine_order_tap(run, layer, tap.name, replay.config()));
  if (!expected || !actual) return MaybeOutput();
  out.expected = *std::move(expected);
  out.actual = select_rows(*std::move(actual), rows);
  out.row_limits.assign(out.actual.rows, 0);
  out.why = "the numeric contract: equal bits";
  return MaybeOutput(std::move(out));
}

bool same_bits(const TapMatrix& a, const TapMatrix& b) {
  return std::ranges::equal(a.values, b.values, [](float x, float y) {
    return (std::isnan(x) && std::isnan(y)) ||
           std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

LayerDiffRow judge(int layer, const Tap& tap, const OpOutput& output) {
  LayerDiffRow row{.layer = layer, .tap = std::string(tap.name)};
  row.error = compare(output.actual.values, output.expected.values, output.expected.features);
  if (std::ranges::all_of(output.row_limits, [](double limit) { return limit == 0; })) {
    row.limits = {{"*", Metric::kMaxAbs, 0, output.why}};
    if (!same_bits(output.actual, output.expected)) {
      row.verdict = TapVerdict::kFail;
      if (row.error.max_abs == 0) row.note = "zeros differ in their sign";
    }
  } else {
    double worst = -1;
    for (std::size_t i = 0; i < output.row_limits.size(); ++i) {
      const double value = nmse(output.actual.row(i), output.expected.row(i));
      // Not `value > limit`: NaN must fail.
      if (!(value <= output.row_limits[i])) row.verdict = TapVerdict::kFail;
      if (value / output.row_limits[i] <= worst) continue;
      worst = value / output.row_limits[i];
      row.error.row_nmse = value;
      row.limits = {{"*", Metric::kRowNmse, output.row_limits[i], output.why}};
    }
  }
  if (row.error.nonfinite_actual + row.error.nonfinite_expected > 0) {
    row.verdict = TapVerdict::kFail;
    row.note = fmt::format("{} NaN or Inf here, {} expected", row.error.nonfinite_actual,
                           row.error.nonfinite_expected);
  }
  return row;
}

}  // namespace llm
