#include "validate/locate/locate.h"

#include <fmt/core.h>

#include <bit>
#include <cmath>
#include <optional>
#include <utility>

#include "validate/diff/layer_diff.h"
#include "validate/diff/metrics.h"
#include "validate/locate/locate_signature.h"

namespace llm {
namespace {

using MaybeTap = std::optional<TapMatrix>;
constexpr int kGlobal = ProbeSink::kGlobal;

bool same_shape(const TapMatrix& a, const TapMatrix& b) {
  return a.rows == b.rows && a.features == b.features;
}

bool same_bits(const TapMatrix& a, const TapMatrix& b) {
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(a.values[i]) != std::bit_cast<std::uint32_t>(b.values[i]))
      return false;
  }
  return true;
}

/// "only in steps of one token" and the like: which rows differ by more than `limit` allows.
std::string wrong_tokens(const TapMatrix& actual, const TapMatrix& expected, double limit,
                         std::span<const std::int64_t> step_ptr) {
  std::size_t wrong = 0;
  std::size_t first = expected.rows;
  std::size_t wrong_decode = 0;
  std::size_t decode = 0;
  for (std::size_t s = 0; s + 1 < step_ptr.size(); ++s) {
    const bool single = step_ptr[s + 1] - step_ptr[s] == 1;
    for (auto t = static_cast<std::size_t>(step_ptr[s]);
         t < static_cast<std::size_t>(step_ptr[s + 1]); ++t) {
      const auto a = std::span(actual.values).subspan(t * actual.features, actual.features);
      const auto e = std::span(expected.values).subspan(t * actual.features, actual.features);
      decode += single ? 1 : 0;
      if (nmse(a, e) <= limit) continue;
      ++wrong;
      first = std::min(first, t);
      wrong_decode += single ? 1 : 0;
    }
  }
  if (wrong == expected.rows) return {};
  if (wrong == decode && wrong_decode == decode && decode > 0)
    return "all that were fed one at a time (decode), none of a batch";
  if (decode > 0 && wrong_decode == 0 && wrong == expected.rows - decode)
    return "all of a batch (prefill), none that were fed one at a time";
  if (wrong == expected.rows - first)
    return fmt::format("all from position {} on, right before it", first);
  return fmt::format("{} of {}, the first at position {}", wrong, expected.rows, first);
}

std::string place_of(const Finding& f, const std::string& isa) {
  if (f.definition && f.run)
    return "the definition (quant/reference, engine/reference); the compared run differs from it";
  if (f.definition) return "what both paths share (file, weights, tables) or both get wrong alike";
  if (f.wiring) return "the wiring of the forward pass, which both paths get wrong alike";
  return fmt::format("the fast path ({}) alone: quant/kernels, engine/forward", isa);
}

std::string suspects(const Tap& tap, const std::string& type) {
  switch (tap.op) {
    case TapOp::kEmbedding:
      return fmt::format("token ids, the row taken, or how {} blocks are dequantized", type);
    case TapOp::kNorm:
      return "eps, the norm's weight, or which rows are normed";
    case TapOp::kProduct:
      return fmt::format(
          "how {} blocks are read (codes, scales, type id), or which tensor is bound", type);
    case TapOp::kRope:
      return "position, theta, or how dims are paired";
    case TapOp::kAttention:
      return "1/sqrt(d), the causal mask, which KV head a head reads, or rows of the KV cache";
    case TapOp::kActivation:
      return "SiLU, or gate and up exchanged";
    case TapOp::kSum:
      return "which two vectors are added";
  }
  return {};
}

class Locator {
 public:
  Locator(const Replay& replay, const LocateInput& input)
      : replay_(replay),
        in_(input),
        kv_(input.run.meta().kv == "f32" ? KvType::kF32 : KvType::kF16) {}

  Result<Location> run() {
    out_.replayed = true;
    const std::size_t n = replay_.config().n_layers;
    const std::size_t last = in_.max_layers == 0 ? n : std::min(n, in_.max_layers);
    for (const auto& [tap, layer] : taps_of_model(n)) {
      if (last < n && layer == static_cast<int>(last)) {
        out_.remarks.push_back(fmt::format("layers {} to {} were not replayed", last, n - 1));
        break;
      }
      LLM_RETURN_IF_ERROR(check(layer, *tap));
    }
    return std::move(out_);
  }

 private:
  Result<MaybeTap> read(const Dump& dump, int layer, std::string_view tap) const {
    return engine_order_tap(dump, layer, tap, replay_.config());
  }

  Status check(int layer, const Tap& tap) {
    Finding f;
    f.layer = layer;
    f.tap = tap.name;
    f.op = tap_origin(layer, tap.name);
    f.weight_type = replay_.weight_type(layer, tap.name);
    f.limit = op_limit(tap.op, replay_.product_format(layer, tap.name), kv_);
    LLM_RETURN_IF_ERROR(check_definition(f));
    LLM_RETURN_IF_ERROR(check_run(f));
    if (!f.definition && !f.run) return Ok{};
    f.cause = fmt::format("{}; {}", suspects(tap, f.weight_type),
                          place_of(f, in_.run.meta().producer_version));
    out_.findings.push_back(std::move(f));
    return Ok{};
  }

  Status check_definition(Finding& f) {
    LLM_TRY(const MaybeTap expected, read(in_.reference, f.layer, f.tap));
    LLM_TRY(const MaybeTap actual, replay_.run(in_.reference, f.layer, f.tap));
    if (!expected || !actual || !same_shape(*expected, *actual)) {
      out_.remarks.push_back(
          fmt::format("{} was not replayed on the reference's inputs", tap_label(f.layer, f.tap)));
      return Ok{};
    }
    f.nmse = nmse(actual->values, expected->values);
    f.definition = !(f.nmse <= f.limit);
    if (!f.definition) return Ok{};
    return describe(f, *actual, *expected, in_.reference);
  }

  Status check_run(Finding& f) {
    LLM_TRY(const MaybeTap actual, read(in_.run, f.layer, f.tap));
    LLM_TRY(const MaybeTap expected, replay_.run(in_.run, f.layer, f.tap));
    if (!expected || !actual || !same_shape(*expected, *actual)) return Ok{};
    f.run = !same_bits(*actual, *expected);
    if (!f.run) return Ok{};
    LLM_TRY(const MaybeTap plain, read(in_.plain, f.layer, f.tap));
    LLM_TRY(const MaybeTap plain_expected, replay_.run(in_.plain, f.layer, f.tap));
    f.wiring = plain && plain_expected && same_shape(*plain, *plain_expected) &&
               !same_bits(*plain, *plain_expected);
    if (f.definition) return Ok{};
    f.nmse = nmse(actual->values, expected->values);
    f.limit = 0;
    return describe(f, *actual, *expected, in_.run);
  }

  Status describe(Finding& f, const TapMatrix& actual, const TapMatrix& expected,
                  const Dump& inputs) const {
    SignatureOptions options;
    options.tolerance = std::max(f.limit, 1e-12);
    if (find_tap(f.layer, f.tap)->op == TapOp::kRope) {
      options.head_dim = replay_.config().head_dim;
      options.rope_dim = replay_.config().rope_dims;
    }
    f.signature = find_signature(actual, expected, options).text;
    f.tokens = wrong_tokens(actual, expected, f.limit, in_.run.step_ptr());
    LLM_TRY(const std::string twin, equals_other_tap(f, actual, inputs, options.tolerance));
    if (!twin.empty()) f.signature = twin;
    return Ok{};
  }

  /// Names another tap of the layer whose values these are: an input passed through, a neighbour
  /// taken for it.
  Result<std::string> equals_other_tap(const Finding& f, const TapMatrix& actual,
                                       const Dump& inputs, double tolerance) const {
    std::string none;
    if (f.layer == kGlobal) return none;
    for (const Tap& tap : layer_taps()) {
      if (tap.name == f.tap) continue;
      LLM_TRY(const MaybeTap other, read(inputs, f.layer, tap.name));
      if (!other || !same_shape(*other, actual)) continue;
      if (nmse(actual.values, other->values) <= tolerance)
        return fmt::format("these are the values of {}", tap_label(f.layer, tap.name));
    }
    return none;
  }

  const Replay& replay_;
  const LocateInput& in_;
  KvType kv_;
  Location out_;
};

}  // namespace

std::vector<std::string> check_hyper_parameters(const DumpMeta& reference,
                                                const HyperParameters& config) {
  std::vector<std::string> out;
  const auto compare_value = [&](std::string_view name, double here, double there) {
    // The file holds f32; a reference may state the decimal it came from.
    if (there == 0 || std::abs(here - there) <= 1e-6 * std::abs(there)) return;
    out.push_back(fmt::format("{} is {} here, {} in the reference", name, here, there));
  };
  compare_value("n_layers", static_cast<double>(config.n_layers),
                static_cast<double>(reference.n_layers));
  compare_value("head_dim", static_cast<double>(config.head_dim),
                static_cast<double>(reference.head_dim));
  compare_value("rope_dim", static_cast<double>(config.rope_dims),
                static_cast<double>(reference.rope_dim));
  compare_value("eps", static_cast<double>(config.norm_eps), reference.eps);
  compare_value("rope_theta", static_cast<double>(config.rope_theta), reference.rope_theta);
  return out;
}

Result<std::vector<std::string>> check_quantizer(const Replay& replay, const Dump& reference) {
  std::vector<std::string> out;
  const auto check = [&](int layer, std::string_view tap) -> Status {
    const auto format = replay.product_format(layer, tap);
    const auto from = Replay::input_of(layer, tap, replay.config().n_layers);
    if (!format || !from || *format == ActivationFormat::kF32) return Ok{};
    LLM_TRY(const MaybeTap x,
            engine_order_tap(reference, from->first, from->second, replay.config()));
    if (!x || x->features % activation_block_size(*format) != 0) return Ok{};
    const std::string fault = quantization_fault(*format, x->values);
    if (!fault.empty()) {
      out.push_back(fmt::format("{}: quantization of the activations to {}: {}",
                                tap_label(layer, tap),
                                *format == ActivationFormat::kQ8_K ? "q8_k" : "q8_32", fault));
    }
    return Ok{};
  };
  for (const auto& [tap, layer] : taps_of_model(replay.config().n_layers))
    LLM_RETURN_IF_ERROR(check(layer, tap->name));
  return out;
}

double op_limit(TapOp op, std::optional<ActivationFormat> format, KvType kv) {
  if (format == ActivationFormat::kQ8_K) return 4e-3;
  if (format == ActivationFormat::kQ8_32) return 5e-4;
  if (op == TapOp::kAttention && kv == KvType::kF16) return 1e-6;
  // References in f32 round angles of RoPE to f32, too.
  return op == TapOp::kRope ? 1e-9 : 1e-10;
}

Result<Location> locate(const Replay& replay, const LocateInput& input) {
  return Locator(replay, input).run();
}

}  // namespace llm
