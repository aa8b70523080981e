#include "validate/reference/gates/drift.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <utility>

#include "engine/forward/activation_points.h"
#include "quant/formats/dequantize.h"
#include "validate/reference/diff/likelihood.h"
#include "validate/reference/diff/metrics.h"
#include "validate/reference/dump/engine_dump.h"
#include "validate/reference/fault_localization/ideal_ops.h"

namespace llm {
namespace {

/// One rounding to f32 is off by up to 2^-24 of the value, uniformly, and by half as much
/// where the significand is large: as NMSE.
constexpr double kOneRounding = 0x1p-48 / 6;
/// The same for f16, whose numbers have 11 digits.
constexpr double kHalfRounding = 0x1p-22 / 6;

/// Ops whose taps are read too early to be disturbed there (ProbeSink::tap), and whose noise is
/// therefore added to the output of `tap`: the norm it reads, and of k and v, which are stored
/// before the taps k_rope and v_norm, the rotation and the norm.
std::vector<std::pair<int, std::string_view>> carried_by(int layer, std::string_view tap,
                                                         const TapFlow& flow) {
  std::vector<std::pair<int, std::string_view>> out;
  const auto from = input_of(*flow.find(layer, tap), layer, flow);
  if (from && from->row->op == TapOp::kNorm) out.emplace_back(from->layer, from->row->name);
  if (tap == "k") out.emplace_back(layer, "k_rope");
  if (tap == "v" && flow.has(*flow.find(layer, "v_norm"), layer)) out.emplace_back(layer, "v_norm");
  return out;
}

/// Disturbs every tap, then records it.
class Disturber final : public Recorder {
 public:
  Disturber(const OpNoise& noise, const TapFlow& flow, std::uint64_t seed)
      : noise_(noise), flow_(flow), random_(seed) {}

  void tap(int layer, std::string_view name, std::span<float> values, std::size_t features,
           std::size_t first_token) override {
    double own = noise_of(layer, name);
    for (const auto& [at, other] : carried_by(layer, name, flow_)) own += noise_of(at, other);
    std::normal_distribution<double> normal;
    for (std::size_t begin = 0; begin < values.size(); begin += features) {
      const auto row = values.subspan(begin, features);
      const double deviation = std::sqrt(own * energy_of(row) / static_cast<double>(features));
      for (float& x : row)
        x = static_cast<float>(static_cast<double>(x) + deviation * normal(random_));
    }
    Recorder::tap(layer, name, values, features, first_token);
  }

 private:
  double noise_of(int layer, std::string_view name) const {
    const auto found = noise_.find({layer, std::string(name)});
    return found == noise_.end() ? kOneRounding : std::max(found->second, kOneRounding);
  }

  const OpNoise& noise_;
  TapFlow flow_;
  std::mt19937_64 random_;
};

/// Sum over the rows of w of the squares, for each block of columns.
std::vector<double> block_energies(const PackedMatrix& w, std::size_t block) {
  std::vector<double> out(w.n_cols() / block);
  std::vector<float> row(w.n_cols());
  for (std::size_t r = 0; r < w.n_rows(); ++r) {
    read_row(w, r, row);
    for (std::size_t b = 0; b < out.size(); ++b)
      out[b] += energy_of(std::span(row).subspan(b * block, block));
  }
  return out;
}

/// What codes of the groups of 32 dims of every head cost, as NMSE: steps^2 / 12 an element.
double group_rounding(const TapMatrix& x, std::size_t head_dim) {
  double error = 0;
  for (std::size_t head = 0; head < x.values.size(); head += head_dim) {
    for (std::size_t d = 0; d < head_dim; d += KvLayout::kGroup) {
      const std::size_t n = std::min(KvLayout::kGroup, head_dim - d);
      const double step =
          static_cast<double>(round_group(std::span(x.values).subspan(head + d, n)).step);
      error += static_cast<double>(n) * step * step / 12;
    }
  }
  const double energy = energy_of(x.values);
  return energy > 0 && std::isfinite(error) ? error / energy : 0;
}

/// What rounding for the cache, and in q8 of q, adds to the output of a tap, as NMSE. K is rounded
/// after RoPE, which changes no group's size much. (The weights of keys, 15 bits, cost far less.)
Result<double> attention_rounding(const Replay& replay, const Dump& inputs, int layer,
                                  std::string_view tap) {
  const bool is_cached = tap == "k" || tap == "v";
  if (replay.kv() == KvType::kF16 && is_cached) return kHalfRounding;
  if (replay.kv() != KvType::kQ8 || !(is_cached || tap == "q_rope")) return 0.0;
  LLM_TRY(const auto x,
          engine_order_tap(inputs, layer, tap == "k" ? "k_rope" : tap, replay.config()));
  return x ? group_rounding(*x, replay.config().attention(static_cast<std::size_t>(layer)).head_dim)
           : 0.0;
}

/// A cost beyond so many times the expected one is worth a word.
constexpr double kUnusual = 10;

}  // namespace

Result<OpNoise> rounding_noise(const Replay& replay, const Dump& inputs) {
  OpNoise out;
  for (const auto& [tap, layer] : taps_of_model(replay.config())) {
    const std::pair key(layer, std::string(tap->name));
    LLM_TRY(const double attention, attention_rounding(replay, inputs, layer, tap->name));
    if (attention > 0) out[key] += attention;
    const auto format = replay.product_format(layer, tap->name);
    if (!format || *format == ActivationFormat::kF32) continue;
    const auto from = input_of(*tap, layer, replay.config());
    LLM_TRY(const auto x, engine_order_tap(inputs, from->layer, from->row->name, replay.config()));
    LLM_TRY(const auto y, engine_order_tap(inputs, layer, tap->name, replay.config()));
    if (!x || !y) continue;
    LLM_TRY(const auto products, replay.products(inputs, layer, *tap, *x, {}));
    if (!products) continue;
    double error = 0;
    for (const reference::Product& product : *products) {
      const auto energies = block_energies(product.w, activation_block_size(*format));
      for (std::size_t t = 0; t < product.places.size(); ++t) {
        const auto steps = round_activations(*format, product.row(t)).steps;
        for (std::size_t b = 0; b < steps.size(); ++b)
          error += steps[b] * steps[b] / 12 * energies[b];
      }
    }
    const auto divisor = static_cast<double>(replay.definition().divisor(*tap));
    const double energy = divisor * divisor * energy_of(y->values);
    if (energy > 0 && std::isfinite(error)) out[key] += error / energy;
  }
  return out;
}

OpNoise arithmetic_noise(const Replay& replay) {
  OpNoise out;
  for (const auto& [tap, layer] : taps_of_model(replay.config())) {
    const PackedMatrix* w = tap->op == TapOp::kProduct ? replay.matrix(layer, tap->name) : nullptr;
    const std::size_t n = w != nullptr ? w->n_cols()
                          : tap->op == TapOp::kAttention
                              ? replay.config().attention(static_cast<std::size_t>(layer)).head_dim
                              : 1;
    out[{layer, std::string(tap->name)}] = static_cast<double>(n) * 0x1p-48 / 6;
  }
  return out;
}

Result<OpNoise> measure_drift(const DriftInput& input, int n_runs) {
  OpNoise out;
  const ExecutorOptions options{.context = input.tokens.size(), .kv = KvType::kF32};
  for (int run = 0; run < n_runs; ++run) {
    Disturber disturber(input.noise, input.model->config(), static_cast<std::uint64_t>(run));
    LLM_TRY(const Dump moved,
            record_with(disturber, input.model, options, input.tokens, input.step_ptr));
    for (const auto& [tap, layer] : taps_of_model(input.model->config())) {
      if (!moved.has(layer, tap->name) || !input.clean.has(layer, tap->name)) continue;
      LLM_TRY(const TapMatrix a, moved.tap(layer, tap->name));
      LLM_TRY(const TapMatrix e, input.clean.tap(layer, tap->name));
      double& most = out[{layer, std::string(tap->name)}];
      most = std::max(most, nmse(a.values, e.values));
    }
  }
  return out;
}

Result<std::vector<std::string>> logits_notes(const Dump& run, const Dump& reference,
                                              const LayerDiffRow& row) {
  std::vector<std::string> notes;
  if (row.verdict != TapVerdict::kShown) return notes;
  LLM_TRY(const TapMatrix actual, run.tap(ProbeSink::kGlobal, "logits"));
  LLM_TRY(const TapMatrix expected, reference.tap(ProbeSink::kGlobal, "logits"));
  DivergenceCollector collector;
  for (std::size_t t = 0; t < expected.rows; ++t) collector.add(actual.row(t), expected.row(t), -1);
  const Divergence d = collector.finish();
  const double usual = row.limits.empty() ? 0 : row.limits.front().bound;
  notes.push_back(fmt::format(
      "logits NMSE {:.1e}, expected {:.1e}; KL {:.1e}; same top token in {:.1f} % of {}",
      row.error.nmse, usual, d.kl_mean, 100 * d.top1_agreement, d.positions));
  if (usual > 0 && !(row.error.nmse <= kUnusual * usual))
    notes.push_back(fmt::format("unusual: {:.0f} x the expected cost", row.error.nmse / usual));
  return notes;
}

std::string noise_note(const Replay& replay, const OpNoise& errors, const OpNoise& predicted) {
  double least = 0;
  double most = 0;
  for (const auto& [key, noise] : predicted) {
    const auto format = replay.product_format(key.first, key.second);
    const auto error = errors.find(key);
    if (!format || *format == ActivationFormat::kF32 || error == errors.end()) continue;
    const double z = std::sqrt(error->second / noise);
    least = most == 0 ? z : std::min(least, z);
    most = std::max(most, z);
  }
  if (most == 0) return {};
  return fmt::format("products: error {:.2f} to {:.2f} times the noise predicted (rms z)", least,
                     most);
}

}  // namespace llm
