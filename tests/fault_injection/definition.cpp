// The definition with faults. A fault without a side is that of the kernels (kernels.cpp), too, so
// that no comparison of bits can show it.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/forward/reference/delta_net.h"
#include "engine/forward/reference/ops.h"
#include "engine/forward/route.h"
#include "engine/model/rope.h"
#include "quant/formats/activations.h"
#include "quant/formats/reference/dot.h"
#include "tests/fault_injection/corrupt.h"
#include "tests/fault_injection/fault.h"
#include "tests/fault_injection/pass.h"

namespace llm::faults {
namespace {

using Bytes = std::span<const std::byte>;
using Output = std::span<float>;

constexpr std::size_t kChunk = contract::kAttentionChunk;

const Fault* product_fault(WeightType type, bool dequantizes) {
  const BlockTraits& traits = block_traits(type);
  const bool is_float = traits.block_weights == 1;
  const char* path = is_float ? "float" : dequantizes ? "dequantized" : "int8";
  return strikes("matmul", {{"side", "definition"}, {"type", traits.name}, {"path", path}});
}

const Fault* quantizer_fault(std::string_view format, Floats x) {
  const Fault* fault = planted("quantize");
  const bool holds =
      fault != nullptr &&
      fault->holds({{"side", "definition"}, {"format", format}, {"amax", largest_magnitude(x)}});
  return holds ? fault : nullptr;
}

}  // namespace

// ---- products

LLM_WRAP(dot_rows,
         "_ZN3llm9reference7dot_rowENS_10WeightTypeESt4spanIKSt4byteLm18446744073709551615EES5_S2_"
         "IfLm18446744073709551615EE",
         void, WeightType type, Bytes row, Bytes activations, Output y) {
  const Fault* fault = product_fault(type, false);
  if (fault == nullptr) return real_dot_rows(type, row, activations, y);
  std::vector<std::byte> x(activations.begin(), activations.end());
  spoil_activations<BlockQ8_K, BlockQ8_32>(*fault, type, block_traits(type).block_weights == 1,
                                           false, y.size(), x);
  real_dot_rows(type, row, x, y);
}

LLM_WRAP(
    dot_rows_f32,
    "_ZN3llm9reference11dot_row_f32ENS_10WeightTypeESt4spanIKSt4byteLm18446744073709551615EES2_"
    "IKfLm18446744073709551615EES2_IfLm18446744073709551615EE",
    void, WeightType type, Bytes row, Floats activations, Output y) {
  const Fault* fault = product_fault(type, true);
  if (fault == nullptr) return real_dot_rows_f32(type, row, activations, y);
  std::vector<float> x(activations.begin(), activations.end());
  spoil_activations<BlockQ8_K, BlockQ8_32>(*fault, type, true, false, y.size(),
                                           std::as_writable_bytes(std::span(x)));
  real_dot_rows_f32(type, row, x, y);
}

// ---- quantized activations

LLM_WRAP(quantize_k, "_ZN3llm14quantize_blockESt4spanIKfLm256EERNS_9BlockQ8_KE", void,
         std::span<const float, 256> x, BlockQ8_K& out) {
  real_quantize_k(x, out);
  if (const Fault* fault = quantizer_fault("Q8_K", x)) quantize_wrongly(*fault, x, out);
}

LLM_WRAP(quantize_32, "_ZN3llm14quantize_blockESt4spanIKfLm32EERNS_10BlockQ8_32E", void,
         std::span<const float, 32> x, BlockQ8_32& out) {
  real_quantize_32(x, out);
  if (const Fault* fault = quantizer_fault("Q8_32", x)) quantize_wrongly(*fault, x, out);
}

LLM_WRAP(quantize_rows,
         "_ZN3llm20quantize_activationsENS_16ActivationFormatESt4spanIKfLm18446744073709551615EES1_"
         "ISt4byteLm18446744073709551615EE",
         void, ActivationFormat format, Floats x, std::span<std::byte> out) {
  real_quantize_rows(format, x, out);
  const auto each = [&]<typename Block>(std::string_view name, Block* block) {
    for (std::size_t i = 0; i < x.size(); i += Block::kWeights, ++block) {
      const Floats of_block = x.subspan(i, Block::kWeights);
      if (const Fault* fault = quantizer_fault(name, of_block))
        quantize_wrongly(*fault, of_block, *block);
    }
  };
  if (planted("quantize") == nullptr) return;
  if (format == ActivationFormat::kQ8_K) each("Q8_K", reinterpret_cast<BlockQ8_K*>(out.data()));
  if (format == ActivationFormat::kQ8_32) each("Q8_32", reinterpret_cast<BlockQ8_32*>(out.data()));
}

/// A group of a q8 cache, and of its queries.
LLM_WRAP(quantize_group, "_ZN3llm14quantize_codesESt4spanIKfLm18446744073709551615EEPa", float,
         Floats x, std::int8_t* codes) {
  float d = real_quantize_group(x, codes);
  if (const Fault* fault = quantizer_fault("Q8_32", x))
    note_struck(), quantize_wrongly(*fault, x, Codes{{codes, x.size()}, &d});
  return d;
}

// ---- norms, RoPE, activations, sums

LLM_WRAP(rms_norm,
         "_ZN3llm9reference8rms_normESt4spanIKfLm18446744073709551615EES3_fS1_IfLm"
         "18446744073709551615EE",
         void, Floats x, Floats weight, float eps, Output y) {
  float squares = 0;
  for (const float v : x) squares += v * v;
  const Fault* fault =
      strikes("rms_norm", {{"side", "definition"},
                           {"n", x.size()},
                           {"mean_square", squares / static_cast<float>(x.size())}});
  if (fault == nullptr) return real_rms_norm(x, weight, eps, y);
  real_rms_norm(x, weight, fault->is("eps") ? eps * 0.1F : fault->is("no_eps") ? 0 : eps, y);
  if (fault->is("last_weight")) y[y.size() - 1] = y[y.size() - 1] / weight.back() * weight[0];
}

LLM_WRAP(route,
         "_ZN3llm5routeERKNS_7FfnSpecESt4spanIKfLm18446744073709551615EES5_S3_IjLm"
         "18446744073709551615EES3_IfLm18446744073709551615EE",
         void, const FfnSpec& spec, Floats logits, Floats bias, std::span<std::uint32_t> chosen,
         Output weights) {
  real_route(spec, logits, bias, chosen, weights);
  const Fault* fault = strikes("route", {{"experts", logits.size()}});
  if (fault == nullptr) return;
  const std::size_t n = logits.size();
  std::vector<float> other(logits.begin(), logits.end());
  if (fault->is("higher_id")) {
    std::ranges::reverse(other);
    real_route(spec, other, bias, chosen, weights);
    for (std::uint32_t& id : chosen) id = static_cast<std::uint32_t>(n) - 1 - id;
    std::ranges::reverse(chosen);
    std::ranges::reverse(weights);
  }
  if (fault->is("no_bias")) real_route(spec, logits, {}, chosen, weights);
  if (fault->is("bias_of_logits") && spec.router == Router::kSoftmax && !bias.empty()) {
    for (std::size_t i = 0; i < n; ++i) other[i] += bias[i];
    real_route(spec, other, {}, chosen, weights);
  }
  if (fault->is("divided_otherwise")) {
    FfnSpec wrong = spec;
    wrong.weights_add_up = !spec.weights_add_up;
    real_route(wrong, logits, bias, chosen, weights);
  }
  if (fault->is("by_magnitude")) {
    for (float& logit : other) logit = std::abs(logit);
    real_route(spec, other, bias, chosen, weights);
  }
  if (fault->is("of_all")) {  // weights of a softmax over all experts
    std::vector<std::uint32_t> all(n);
    std::vector<float> of_all(n);
    real_route(spec, logits, bias, all, of_all);
    for (std::size_t j = 0; j < chosen.size(); ++j) weights[j] = of_all[chosen[j]];
  }
  if (fault->is("equal_weights"))
    std::ranges::fill(weights, 1.0F / static_cast<float>(chosen.size()));
}

LLM_WRAP(norm_heads,
         "_ZN3llm9reference10norm_headsESt4spanIfLm18446744073709551615EES1_IKfLm"
         "18446744073709551615EEf",
         void, Output x, Floats weight, float eps) {
  const std::vector<float> before(x.begin(), x.end());
  real_norm_heads(x, weight, eps);
  const auto fault = planted("head_norm", {{"side", "definition"}});
  const std::size_t n = weight.size();
  for (std::size_t head = 0; fault && n > 0 && head < x.size() / n; ++head) {
    if (!fault->holds({{"head", head}, {"heads_after", x.size() / n - 1 - head}})) continue;
    const Output y = x.subspan(head * n, n);
    note_struck();
    if (fault->is("dropped")) std::copy_n(before.begin() + head * n, n, y.begin());
    if (fault->is("twice")) real_norm_heads(y, weight, eps);
    if (fault->is("last_weight")) y[n - 1] = y[n - 1] / weight[n - 1] * weight[n - 2];
  }
}

LLM_WRAP(
    rope,
    "_ZN3llm9reference4ropeESt4spanIfLm18446744073709551615EEmS1_IKfLm18446744073709551615EES4_"
    "",
    void, Output x, std::size_t head_dim, Floats cos, Floats sin) {
  const std::vector<float> before(x.begin(), x.end());
  real_rope(x, head_dim, cos, sin);
  const auto fault = planted("rope", {{"side", "definition"}, {"pairs", cos.size()}});
  if (fault) spoil_rope(*fault, before, 0, head_dim, cos, sin, x.data());
}

LLM_WRAP(activate,
         "_ZN3llm9reference8activateENS_10ActivationESt4spanIKfLm18446744073709551615EES4_S2_IfLm"
         "18446744073709551615EE",
         void, Activation kind, Floats gate, Floats up, Output y) {
  const std::vector<float> before(gate.begin(), gate.end());
  real_activate(kind, gate, up, y);
  const auto fault = planted("activate", {{"side", "definition"}, {"kind", activation_name(kind)}});
  if (fault) spoil_activation(*fault, kind, before, up.data(), y.data());
}

/// Residual sums, and biases.
LLM_WRAP(add,
         "_ZN3llm9reference3addESt4spanIKfLm18446744073709551615EES1_IfLm18446744073709551615EEf",
         void, Floats y, Output x, float scale) {
  if (strikes("residual", {{"side", "definition"}}) == nullptr) return real_add(y, x, scale);
  std::ranges::copy(y, x.begin());
}

// ---- Gated DeltaNet, Mamba-2

LLM_WRAP(convolve, "_ZN3llm9reference8convolveESt4spanIKfLm18446744073709551615EES3_S3_b", float,
         Floats inputs, Floats weights, Floats bias, bool silu) {
  const Fault* fault = strikes("convolve", {{"side", "definition"}, {"width", inputs.size()}});
  if (fault == nullptr) return real_convolve(inputs, weights, bias, silu);
  std::vector<float> wrong(inputs.begin(), inputs.end());
  if (fault->is("oldest")) wrong[0] = wrong[1];
  if (fault->is("no_bias")) bias = {};
  return real_convolve(wrong, weights, bias, silu);
}

LLM_WRAP(unit_length, "_ZN3llm9reference11unit_lengthESt4spanIfLm18446744073709551615EEf", void,
         Output x, float factor) {
  const Fault* fault = strikes("unit_length", {{"side", "definition"}, {"n", x.size()}});
  real_unit_length(x, fault != nullptr && fault->is("factor") ? 1.0F : factor);
}

LLM_WRAP(delta_rule,
         "_ZN3llm9reference10delta_ruleERKNS_12DeltaNetSpecESt4spanIKfLm18446744073709551615EES6_"
         "S6_S6_S6_RKNS_10DeltaStateES4_IfLm18446744073709551615EE",
         void, const DeltaNetSpec& spec, Floats x, Floats a, Floats b, Floats dt, Floats slope,
         const DeltaState& state, Output o) {
  const Fault* fault = strikes("delta_rule", {{"side", "definition"}, {"k_dim", spec.k_dim}});
  if (fault == nullptr) return real_delta_rule(spec, x, a, b, dt, slope, state, o);
  DeltaNetSpec other = spec;
  if (fault->is("other_heads")) other.grouped = !spec.grouped;
  if (fault->is("gates_swapped")) std::swap(a, b);
  real_delta_rule(other, x, a, b, dt, slope, state, o);
}

LLM_WRAP(scan_column, "_ZN3llm9reference4scanESt4spanIKfLm18446744073709551615EES3_ffffPfm", float,
         Floats q, Floats k, float v, float decay, float step, float past, float* s,
         std::size_t stride) {
  const Fault* fault = strikes("scan", {{"side", "definition"}, {"k_dim", k.size()}});
  if (fault != nullptr && fault->is("no_past")) past = 0;
  if (fault != nullptr && fault->is("no_step")) step = 1;
  return real_scan_column(q, k, v, decay, step, past, s, stride);
}

LLM_WRAP(scan,
         "_ZN3llm9reference4scanERKNS_12DeltaNetSpecESt4spanIKfLm18446744073709551615EES6_S6_S6_"
         "S6_RKNS_10DeltaStateES4_IfLm18446744073709551615EE",
         void, const DeltaNetSpec& spec, Floats x, Floats a, Floats dt, Floats slope, Floats past,
         const DeltaState& state, Output o) {
  const Fault* fault = strikes("scan", {{"side", "definition"}, {"k_dim", spec.k_dim}});
  if (fault == nullptr) return real_scan(spec, x, a, dt, slope, past, state, o);
  DeltaNetSpec other = spec;
  if (fault->is("other_heads")) other.grouped = !spec.grouped;
  const std::vector<float> none(past.size());
  real_scan(other, x, a, dt, slope, fault->is("no_past") ? Floats(none) : past, state, o);
}

// ---- angles, which both use

LLM_WRAP(angles, "_ZNK3llm4Rope6anglesEmSt4spanIfLm18446744073709551615EES2_", void,
         const Rope* self, std::size_t position, Output cos, Output sin) {
  real_angles(self, position, cos, sin);
  const auto fault =
      planted("angle", {{"position", position}, {"rows", pass_rows()}, {"fast", pass_rows() > 0}});
  if (!fault) return;
  const std::span<const double> frequencies = self->frequencies();
  for (std::size_t i = 0; i < cos.size(); ++i) {
    const double f = frequencies[i];
    if (!fault->holds({{"pair", i}, {"pairs_after", cos.size() - 1 - i}, {"frequency", f}}))
      continue;
    double angle = static_cast<double>(position) * f;
    if (fault->is("late")) angle -= f;
    if (fault->is("early")) angle += f;
    if (fault->is("wrapped")) angle = static_cast<double>(position % 2048) * f;
    if (fault->is("f32")) angle = static_cast<float>(position) * static_cast<float>(f);
    if (fault->is("theta")) angle = static_cast<double>(position) * std::pow(f, 1.4);
    if (fault->is("exponent")) angle = static_cast<double>(position) * std::sqrt(f);
    put(cos[i], static_cast<float>(std::cos(angle)));
    put(sin[i], static_cast<float>(std::sin(angle)));
  }
}

// ---- attention

LLM_WRAP(attend,
         "_ZN3llm9reference6attendESt4spanIKfLm18446744073709551615EERKNS0_9ScoreRuleERKNS_"
         "13SequenceStateEmmmmPS2_S1_IfLm18446744073709551615EE",
         void, Floats q, const reference::ScoreRule& rule, const SequenceState& cache,
         std::size_t layer, std::size_t kv_head, std::size_t position, std::size_t window,
         const float* sink, Output context) {
  const Fault* fault = strikes(
      "attend", {{"side", "definition"}, {"position", position}, {"chunk", position / kChunk}});
  if (fault == nullptr)
    return real_attend(q, rule, cache, layer, kv_head, position, window, sink, context);
  std::vector<float> wrong(q.begin(), q.end());
  if (fault->is("last_dim")) wrong.back() = 0;
  for (float& value : wrong) value *= fault->is("no_scale") ? 2.0F : 1.0F;
  if (fault->is("fewer_keys") && position % kChunk != 0) --position;
  if (fault->is("more_keys") && position % kChunk != kChunk - 1) ++position;
  if (fault->is("no_chunk") && position >= kChunk) position = position / kChunk * kChunk - 1;
  if (fault->is("next_head") && kv_head > 0) --kv_head;
  if (fault->is("window_short") && window > 1) --window;
  if (fault->is("window_long") && window > 0) ++window;
  const float scaled = sink != nullptr ? *sink * rule.scale : 0;
  if (fault->is("no_sink")) sink = nullptr;
  if (fault->is("sink_scaled") && sink != nullptr) sink = &scaled;
  real_attend(wrong, rule, cache, layer, kv_head, position, window, sink, context);
}

}  // namespace llm::faults
