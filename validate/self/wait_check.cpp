#include "validate/self/wait_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include "base/thread_team.h"
#include "quant/formats/activations.h"
#include "validate/reference/diff/layer_diff.h"
#include "validate/reference/diff/limits_file.h"
#include "validate/reference/dump/engine_dump.h"

namespace llm {
namespace {

constexpr int kTeamsThatWait[] = {2, 3, 7};
constexpr int kRounds = 4;
constexpr std::size_t kTokens = 41;

/// Whether the products of one input in a layer take it in different formats.
bool is_mixed(const LayerWeights& w) {
  const auto differ = [](const PackedMatrix& a, const PackedMatrix& b) {
    return activation_format(a.type()) != activation_format(b.type());
  };
  return differ(w.attn_q, w.attn_k) || differ(w.attn_k, w.attn_v) || differ(w.ffn_gate, w.ffn_up);
}

class WaitCheck {
 public:
  explicit WaitCheck(const ModePlan& plan) : plan_(plan) {
    const auto& layers = plan.base->weights().layers;
    const auto mixed = std::ranges::find_if(layers, is_mixed);
    has_mixed_ = mixed != layers.end();
    const auto wanted = has_mixed_ ? static_cast<std::size_t>(mixed - layers.begin()) + 1 : 0;
    n_layers_ =
        std::clamp<std::size_t>(wanted, std::min<std::size_t>(2, layers.size()), layers.size());
    std::mt19937_64 random(2);
    for (std::size_t i = 0; i < kTokens; ++i)
      tokens_.push_back(static_cast<TokenId>(random() % plan.base->config().n_vocab));
  }

  Result<PartOutcome> run() {
    LLM_TRY(alone_, plan_.model(1, {}, n_layers_));
    auto expected = evaluate(alone_, path(), tokens_);
    if (!expected.ok()) {
      auto failed = nonfinite_check(plan_.title(alone_->isa(), "1 thread"), expected.error());
      if (!failed) return std::move(expected).error();
      out_.results.push_back(*std::move(failed));
      return std::move(out_);
    }
    expected_ = std::move(expected).value();
    for (const int threads : kTeamsThatWait) {
      LLM_RETURN_IF_ERROR(check_logits(threads));
      LLM_RETURN_IF_ERROR(check_activations(threads));
    }
    if (plan_.compute == Compute::kInt8 && !has_mixed_)
      out_.not_covered.push_back(
          plan_.name +
          ": a change of activation format within a layer (no layer has types for it)");
    return std::move(out_);
  }

 private:
  /// 5 tokens and 33 in a call each, then single ones.
  Path path() const {
    const bool dear = logits_are_dear(plan_.base->config(), n_layers_);
    return {.name = "",
            .executor = {.kv = plan_.kv},
            .feeds = {{.end = 5},
                      {.begin = 5, .end = 38, .rows = dear ? LogitRows::kLast : LogitRows::kAll},
                      {.begin = 38, .end = kTokens, .per_call = 1}}};
  }

  std::string title(int threads, const std::string& what) const {
    return plan_.title(alone_->isa(),
                       fmt::format("{} threads that wait at random{}", threads, what));
  }

  Status check_logits(int threads) {
    LLM_TRY(const ModelPointer team, plan_.model(threads, {}, n_layers_));
    // The first round that differs says enough.
    for (int round = 0; round < kRounds; ++round) {
      std::optional<RandomWaits> waits(std::in_place, static_cast<std::uint64_t>(round + 1));
      LLM_TRY(Judged judged, judge(title(threads, ""), expected_,
                                   [&] { return evaluate(team, path(), tokens_); }));
      waits.reset();
      plan_.report(static_cast<std::size_t>(round + 1), kRounds);
      if (judged.result.passed && round + 1 < kRounds) continue;
      if (!judged.result.passed) {
        LLM_TRY(const std::string where, first_wrong_layer(team));
        judged.result.detail += where;
      }
      if (judged.result.passed)
        judged.result.detail += fmt::format(", {} times, {} layers", kRounds, n_layers_);
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
    const KvCache& cache = sequence->cache();
    const std::size_t bytes = cache.pool().layout().row_bytes() * cache.pool().n_heads();
    std::vector<std::vector<std::byte>> layers(n_layers_);
    for (std::size_t layer = 0; layer < n_layers_; ++layer) {
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
    LLM_TRY(const auto right, stored_rows(alone_));
    for (int round = 0; round < kRounds; ++round) {
      const RandomWaits waits(static_cast<std::uint64_t>(200 + round));
      LLM_TRY(const auto stored, stored_rows(team));
      const auto [wrong, ignored] = std::ranges::mismatch(stored, right);
      if (wrong == stored.end()) continue;
      const auto layer = wrong - stored.begin();
      if (layer == 0) return std::string("; by layer 0's keys and values it has happened");
      return fmt::format(
          "; it happens in layer {} behind its keys and values: attention, residual, feed-forward",
          layer - 1);
    }
    return fmt::format("; it happens in layer {} behind its keys and values, or in the output",
                       n_layers_ - 1);
  }

  Status check_activations(int threads) {
    LLM_TRY(const ModelPointer team, plan_.model(threads, {}, n_layers_));
    const std::string name = title(threads, ", activations");
    const auto few = std::span(tokens_).first(5);
    const ExecutorOptions options{.context = few.size(), .kv = plan_.kv};
    LLM_TRY(const Dump plain, record_activations(alone_, options, false, few, "llmcheck", ""));
    for (int round = 0; round < kRounds; ++round) {
      const RandomWaits waits(static_cast<std::uint64_t>(100 + round));
      LLM_TRY(const Dump waiting, record_activations(team, options, false, few, "llmcheck", ""));
      LLM_TRY(const LayerDiff diff, diff_layers(waiting, plain, exact_limits()));
      if (diff.passed()) continue;
      std::string where = "activations cannot be compared";
      if (diff.first_failing) {
        const LayerDiffRow& row = diff.rows[*diff.first_failing];
        where = fmt::format("the first activation to differ is {}: look at what waits before {}",
                            tap_label(row.layer, row.tap), tap_origin(row.layer, row.tap));
      }
      out_.results.push_back({name, false, where});
      return Ok{};
    }
    out_.results.push_back({name, true, fmt::format("{} times, {} layers", kRounds, n_layers_)});
    return Ok{};
  }

  const ModePlan& plan_;
  bool has_mixed_ = false;
  std::size_t n_layers_ = 0;
  std::vector<TokenId> tokens_;
  ModelPointer alone_;
  LogitTable expected_;
  PartOutcome out_;
};

}  // namespace

Result<PartOutcome> check_waits(const ModePlan& plan) { return WaitCheck(plan).run(); }

}  // namespace llm
