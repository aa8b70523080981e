#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include "base/thread_team.h"
#include "quant/formats/activations.h"
#include "validate/selftest/mode_check.h"

namespace llm {
namespace {

constexpr int kTeamsThatWait[] = {2, 3, 7};
constexpr int kRounds = 4;
constexpr std::size_t kWaitTokens = 41;

/// Whether the products of one input in a layer take it in different formats.
bool is_mixed(const LayerWeights& w) {
  const auto differ = [](const PackedMatrix& a, const PackedMatrix& b) {
    return activation_format(a.type()) != activation_format(b.type());
  };
  return differ(w.attn_q, w.attn_k) || differ(w.attn_k, w.attn_v) || differ(w.ffn_gate, w.ffn_up);
}

class WaitCheck : private PathCheck {
 public:
  explicit WaitCheck(const ModePlan& plan) : PathCheck(plan) {
    const auto& layers = plan.base->weights().layers;
    const auto mixed = std::ranges::find_if(layers, is_mixed);
    has_mixed_ = mixed != layers.end();
    const auto wanted = has_mixed_ ? static_cast<std::size_t>(mixed - layers.begin()) + 1 : 0;
    n_layers_ =
        std::clamp<std::size_t>(wanted, std::min<std::size_t>(2, layers.size()), layers.size());
    std::mt19937_64 random(2);
    draw_tokens(tokens_, kWaitTokens, plan.base->config().n_vocab, random);
  }

  Result<PartOutcome> run() {
    LLM_TRY(model_, plan_.model(1, {}, n_layers_));
    LLM_TRY(const bool is_finite, expect("1 thread", evaluate(model_, path(), tokens_)));
    if (!is_finite) return finish();
    for (const int threads : kTeamsThatWait) {
      scope_ = fmt::format("{} threads that wait at random", threads);
      LLM_TRY(const ModelPointer team, plan_.model(threads, {}, n_layers_));
      LLM_RETURN_IF_ERROR(check_logits(team));
    }
    if (plan_.compute == Compute::kInt8 && !has_mixed_)
      out_.not_covered.push_back(
          plan_.name +
          ": a change of activation format within a layer (no layer has types for it)");
    return finish();
  }

 private:
  /// 5 tokens and 33 in a call each, then single ones.
  Path path() const {
    const LogitRows rows = rows_of_long_call(plan_.base->config(), n_layers_);
    return {.name = "",
            .executor = {.kv = plan_.kv},
            .feeds = {{.end = 5},
                      {.begin = 5, .end = 38, .rows = rows},
                      {.begin = 38, .end = kWaitTokens, .per_call = 1}}};
  }

  Status check_logits(const ModelPointer& team) {
    // The first round that differs says enough.
    for (int round = 0; round < kRounds; ++round) {
      std::optional<RandomWaits> waits(std::in_place, static_cast<std::uint64_t>(round + 1));
      LLM_TRY(Judged judged, judge_path(team, path()));
      waits.reset();
      plan_.report(static_cast<std::size_t>(round + 1), kRounds);
      if (judged.result.passed && round + 1 < kRounds) continue;
      if (judged.result.passed) {
        judged.result.detail += fmt::format(", {} times, {} layers", kRounds, n_layers_);
      } else {
        LLM_TRY(const std::string where, first_wrong_layer(team));
        judged.result.detail += where;
      }
      out_.results.push_back(std::move(judged.result));
      break;
    }
    return Ok{};
  }

  /// What `path()` leaves in the cache, layer by layer.
  Result<std::vector<std::vector<std::byte>>> stored_rows(const ModelPointer& model) const {
    LLM_TRY(const auto sequence, open_sequence(model, {.context = tokens_.size(), .kv = plan_.kv}));
    const auto all = std::span(tokens_);
    LLM_RETURN_IF_ERROR(sequence->evaluate(all.first(5), LogitRows::kNone));
    LLM_RETURN_IF_ERROR(sequence->evaluate(all.subspan(5, 33), LogitRows::kNone));
    for (std::size_t t = 38; t < tokens_.size(); ++t)
      LLM_RETURN_IF_ERROR(sequence->evaluate(all.subspan(t, 1), LogitRows::kNone));
    const SequenceState& cache = sequence->cache();
    std::vector<std::vector<std::byte>> layers(n_layers_);
    for (std::size_t layer = 0; layer < n_layers_; ++layer) {
      const std::size_t bytes = cache.pool().row_bytes(layer);
      layers[layer].resize(2 * bytes * tokens_.size());
      for (std::size_t t = 0; t < tokens_.size(); ++t) {
        const auto row = std::span(layers[layer]).subspan(2 * bytes * t, 2 * bytes);
        cache.load_raw(layer, t, row.first(bytes), row.last(bytes));
      }
    }
    return layers;
  }

  /// Where a race strikes, in words: taps wait by themselves and would hide it, but keys and values
  /// say which layer was the first to read what was not there.
  Result<std::string> first_wrong_layer(const ModelPointer& team) const {
    LLM_TRY(const auto right, stored_rows(model_));
    for (int round = 0; round < kRounds; ++round) {
      const RandomWaits waits(static_cast<std::uint64_t>(200 + round));
      LLM_TRY(const auto stored, stored_rows(team));
      const auto [wrong, ignored] = std::ranges::mismatch(stored, right);
      if (wrong == stored.end()) continue;
      const auto layer = wrong - stored.begin();
      if (layer == 0)
        return std::string("; it happens before the keys and values of layer 0 are complete");
      return fmt::format(
          "; it happens in layer {} after its keys and values: attention, residual, feed-forward",
          layer - 1);
    }
    return fmt::format("; it happens in layer {} after its keys and values, or in the output",
                       n_layers_ - 1);
  }

  bool has_mixed_ = false;
  std::size_t n_layers_ = 0;
};

}  // namespace

Result<PartOutcome> check_waits(const ModePlan& plan) { return WaitCheck(plan).run(); }

}  // namespace llm
