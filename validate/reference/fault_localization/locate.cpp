#include "validate/reference/fault_localization/locate.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "validate/reference/diff/layer_diff.h"
#include "validate/reference/diff/metrics.h"
#include "validate/reference/dump/engine_dump.h"
#include "validate/reference/fault_localization/ideal_ops.h"
#include "validate/reference/fault_localization/locate_cause.h"
#include "validate/reference/fault_localization/locate_signature.h"

namespace llm {
namespace {

/// "all from position 5 on" and the like: which rows are further out than their limits.
std::string wrong_tokens(const OpOutput& output, TokenRows rows,
                         std::span<const std::int64_t> step_ptr) {
  const std::size_t n = output.actual.rows;
  const auto position = [&](std::size_t i) { return rows.empty() ? i : rows[i]; };
  const auto is_decode = [&](std::size_t i) {
    const auto end = std::ranges::upper_bound(step_ptr, static_cast<std::int64_t>(position(i)));
    return end != step_ptr.begin() && end != step_ptr.end() && *end - *std::prev(end) == 1;
  };
  std::size_t wrong = 0;
  std::size_t first = n;
  std::size_t wrong_decode = 0;
  std::size_t decode = 0;
  for (std::size_t i = 0; i < n; ++i) {
    decode += is_decode(i) ? 1 : 0;
    const double error = nmse(output.actual.row(i), output.expected.row(i));
    if (error <= output.row_limits[i]) continue;
    ++wrong;
    first = std::min(first, i);
    wrong_decode += is_decode(i) ? 1 : 0;
  }
  if (wrong == n || wrong == 0) return {};
  if (wrong == decode && wrong_decode == decode && decode > 0)
    return "all tokens of decode, none of prefill";
  if (decode > 0 && wrong_decode == 0 && wrong == n - decode)
    return "all tokens of prefill, none of decode";
  if (wrong == n - first)
    return fmt::format("all from position {} on, right before it", position(first));
  return fmt::format("{} of {}, the first at position {}", wrong, n, position(first));
}

std::string place_of(const Finding& f, const std::string& isa) {
  if (f.definition && f.run)
    return "the definition (quant/formats/reference, engine/forward/reference); the compared run "
           "differs from it";
  if (f.definition)
    return "what both paths share (file, weights, tables), or the same fault in both";
  return fmt::format("only the fast path ({}): quant/kernels, engine/forward", isa);
}

class Locator {
 public:
  Locator(const Replay& replay, const LocateInput& input)
      : replay_(replay), in_(input), flow_(replay.config()) {}

  Result<Location> run() {
    out_.replayed = true;
    auto ops = in_.ops;
    if (ops.empty()) ops = taps_of_model(replay_.config());
    for (const auto& [tap, layer] : ops) LLM_RETURN_IF_ERROR(check(layer, *tap));
    return std::move(out_);
  }

 private:
  Status check(int layer, const Tap& tap) {
    Finding f;
    f.layer = layer;
    f.tap = tap.name;
    f.op = tap_origin(layer, tap.name);
    f.weight_type = replay_.weight_type(layer, tap.name);
    LLM_TRY(const auto on_reference, op_on_reference(replay_, in_.reference, layer, tap, in_.rows));
    LLM_TRY(const auto of_run, op_of_run(replay_, in_.run, layer, tap, in_.rows));
    f.definition = on_reference && fails(layer, tap, *on_reference);
    f.run = of_run && fails(layer, tap, *of_run);
    if (!on_reference) {
      out_.remarks.push_back(
          fmt::format("{} was not replayed on the reference's inputs", tap_label(layer, tap.name)));
    }
    if (!f.definition && !f.run) return Ok{};
    if (!f.definition && same_bits(of_run->actual, of_run->expected)) {
      // NaN by the definition as well: only the first op has it by itself.
      if (saw_nonfinite_) return Ok{};
      saw_nonfinite_ = true;
    }
    LLM_TRY(const std::string cause, f.definition ? describe(f, *on_reference, in_.reference)
                                                  : describe(f, *of_run, in_.run));
    f.cause = fmt::format("{}; {}", cause, place_of(f, in_.run.meta().producer_version));
    out_.findings.push_back(std::move(f));
    return Ok{};
  }

  static bool fails(int layer, const Tap& tap, const OpOutput& output) {
    return judge(layer, tap, output).verdict == TapVerdict::kFail;
  }

  /// @return the likely cause
  Result<std::string> describe(Finding& f, const OpOutput& output, const Dump& inputs) const {
    const Tap& tap = *flow_.find(f.layer, f.tap);
    const LayerDiffRow row = judge(f.layer, tap, output);
    f.nmse = row.limits.front().metric == Metric::kRowNmse ? row.error.row_nmse : row.error.nmse;
    f.limit = row.limits.front().bound;
    SignatureOptions options;
    options.tolerance = std::max(f.limit, 1e-12);
    if (tap.op == TapOp::kRope) {
      const auto layer = static_cast<std::size_t>(f.layer);
      options.head_dim = replay_.config().attention(layer).head_dim;
      options.rope_dim = replay_.config().paired_dims(layer);
    }
    Signature signature = find_signature(output.actual, output.expected, options);
    f.tokens = wrong_tokens(output, in_.rows, in_.run.step_ptr());
    // Of a quantization, an exchanged matrix gives nearly the other op's values.
    const double like = tap.op == TapOp::kProduct ? row.error.nmse / 10 : 0;
    LLM_TRY(std::string twin,
            equals_other_tap(f, output.actual, inputs, std::max(like, options.tolerance)));
    if (!twin.empty()) signature = {SignatureKind::kOtherTap, std::move(twin)};
    f.signature = signature.text;
    return likely_cause(replay_, {.layer = f.layer,
                                  .tap = tap,
                                  .output = output,
                                  .kind = signature.kind,
                                  .is_reference = f.definition,
                                  .inputs = inputs,
                                  .rows = in_.rows});
  }

  /// Names another tap of the layer whose values these are: an input passed through, a neighbour
  /// taken for it.
  Result<std::string> equals_other_tap(const Finding& f, const TapMatrix& actual,
                                       const Dump& inputs, double tolerance) const {
    std::string none;
    if (f.layer == ProbeSink::kGlobal) return none;
    for (const Tap& tap : layer_taps()) {
      if (tap.name == f.tap || !flow_.has(tap, f.layer)) continue;
      LLM_TRY(auto found, engine_order_tap(inputs, f.layer, tap.name, replay_.config()));
      if (!found || found->features != actual.features) continue;
      const TapMatrix other = select_rows(*std::move(found), in_.rows);
      if (nmse(actual.values, other.values) <= tolerance)
        return fmt::format("these are the values of {}", tap_label(f.layer, tap.name));
    }
    return none;
  }

  const Replay& replay_;
  const LocateInput& in_;
  TapFlow flow_;
  bool saw_nonfinite_ = false;
  Location out_;
};

}  // namespace

std::vector<std::string> check_hyper_parameters(const DumpMeta& reference,
                                                const HyperParameters& config) {
  std::vector<std::string> out;
  const auto compare = [&](std::string_view key, double here, double there) {
    // The file holds f32; a reference may state the decimal it came from.
    if (std::abs(here - there) > 1e-6 * std::abs(there))
      out.push_back(fmt::format("{} is {:.6g} here, {:.6g} in the reference", key, here, there));
  };
  const auto compare_value = [&](std::string_view key, double here, double there) {
    if (there != 0) compare(key, here, there);
  };
  compare_value("block_count", static_cast<double>(config.n_layers),
                static_cast<double>(reference.n_layers));
  compare_value("attention.key_length", static_cast<double>(config.most(&LayerSpec::head_dim)),
                static_cast<double>(reference.head_dim));
  compare_value("rope.dimension_count", static_cast<double>(2 * config.rope_pairs()),
                static_cast<double>(reference.rope_dim));
  compare_value("attention.layer_norm_rms_epsilon", static_cast<double>(config.norm_eps),
                reference.eps);
  compare_value("rope.freq_base", static_cast<double>(config.ropes.front().theta),
                reference.rope_theta);
  for (const HyperNumber& one : hyper_numbers(config)) {
    const auto there = reference.numbers.find(std::string(one.name));
    if (there != reference.numbers.end()) compare(one.key, one.value, there->second);
  }
  return out;
}

Result<std::vector<std::string>> check_quantizer(const Replay& replay, const Dump& reference) {
  std::vector<std::string> out;
  for (const auto& [tap, layer] : taps_of_model(replay.config())) {
    const auto format = replay.product_format(layer, tap->name);
    const auto from = input_of(*tap, layer, replay.config());
    if (!format || !from || *format == ActivationFormat::kF32) continue;
    LLM_TRY(const std::optional<TapMatrix> x,
            engine_order_tap(reference, from->layer, from->row->name, replay.config()));
    if (!x || x->features % activation_block_size(*format) != 0) continue;
    const std::string fault = quantization_fault(*format, x->values);
    if (!fault.empty()) {
      out.push_back(fmt::format("{}: quantization of the activations to {}: {}",
                                tap_label(layer, tap->name),
                                *format == ActivationFormat::kQ8_K ? "q8_k" : "q8_32", fault));
    }
  }
  return out;
}

Result<Location> locate(const Replay& replay, const LocateInput& input) {
  return Locator(replay, input).run();
}

}  // namespace llm
