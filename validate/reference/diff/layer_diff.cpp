#include "validate/reference/diff/layer_diff.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "engine/model/tensor_name.h"

namespace llm {
namespace {

constexpr std::array kAllMetrics = {Metric::kNmse, Metric::kRowNmse, Metric::kMaxAbs,
                                    Metric::kCosineLoss};

/// What is known of the two vocabularies, where both sides say something: empty if they are equal.
std::string vocabulary_remark(const DumpMeta& actual, const DumpMeta& reference) {
  if (actual.tokenizer_hash.empty() || reference.tokenizer_hash.empty()) return {};
  if (actual.tokenizer_hash != reference.tokenizer_hash)
    return "the vocabularies differ (tokenizer_hash)";
  if (actual.merges_hash == reference.merges_hash) return {};
  if (actual.merges_hash.empty() || reference.merges_hash.empty()) {
    return fmt::format(
        "{} has no merges_hash, so whether both have the same merges and pre-tokenizer is unknown: "
        "it was made by an earlier version",
        actual.merges_hash.empty() ? "this dump" : "the reference");
  }
  return "the merges or the pre-tokenizers differ (merges_hash)";
}

void check_inputs(const Dump& actual, const Dump& reference, LayerDiff& out) {
  const auto differ = [&](std::string_view what, std::span<const std::int32_t> a,
                          std::span<const std::int32_t> e) {
    const auto [ia, ie] = std::ranges::mismatch(a, e);
    if (ia == a.end() && ie == e.end()) return;
    out.problems.push_back(
        fmt::format("{} differ at index {}: {} here, {} in the reference ({} and {} in all)", what,
                    ia - a.begin(), ia == a.end() ? "none" : std::to_string(*ia),
                    ie == e.end() ? "none" : std::to_string(*ie), a.size(), e.size()));
  };
  differ("tokens", actual.tokens(), reference.tokens());
  differ("positions", actual.positions(), reference.positions());

  const DumpMeta& a = actual.meta();
  const DumpMeta& e = reference.meta();
  if (const std::string remark = vocabulary_remark(a, e); !remark.empty())
    out.remarks.push_back(remark);
  if (!a.model_sha256.empty() && !e.model_sha256.empty() && a.model_sha256 != e.model_sha256)
    out.remarks.emplace_back("the model files differ (model_sha256)");
  if (actual.n_layers() > reference.n_layers()) {
    out.problems.push_back(fmt::format("{} layers here, {} in the reference", actual.n_layers(),
                                       reference.n_layers()));
  }
  for (const Dump* dump : {&actual, &reference}) {
    if (dump->unknown_keys().empty()) continue;
    out.remarks.push_back(
        fmt::format("{} unknown arrays in {}, not compared: {}, ...", dump->unknown_keys().size(),
                    dump == &actual ? "this dump" : "the reference", dump->unknown_keys().front()));
  }
}

// Brings a q or k tap to the interleaved order. Returns what makes that impossible, or nothing.
std::string to_interleaved(const Dump& dump, std::size_t head_dim, std::size_t rope_dim,
                           TapMatrix& matrix) {
  if (dump.meta().qk_layout == "interleaved") return {};
  const std::size_t rotated = rope_dim == 0 ? head_dim : rope_dim;
  if (head_dim == 0 || rotated % 2 != 0 || rotated > head_dim || matrix.features % head_dim != 0) {
    return fmt::format("qk_layout half needs hparams head_dim and rope_dim; found {} and {}",
                       head_dim, rope_dim);
  }
  half_to_interleaved(matrix, head_dim, rotated);
  return {};
}

void judge_row(LayerDiffRow& row, const Limits& limits) {
  const std::string label = tap_label(row.layer, row.tap);
  row.verdict = TapVerdict::kPass;
  for (const Metric metric : kAllMetrics) {
    const Limit* limit = limits.find(label, metric);
    if (limit == nullptr) continue;
    row.limits.push_back(*limit);
    // Not `value > bound`: NaN must fail.
    const bool within = metric_value(metric, row.error) <= limit->bound;
    if (!within) row.verdict = TapVerdict::kFail;
  }
  if (!row.limits.empty()) return;
  row.verdict = TapVerdict::kFail;
  row.note = "no limit is stated for this tap";
}

class Differ {
 public:
  Differ(const Dump& actual, const Dump& reference) : actual_(actual), reference_(reference) {}

  Result<LayerDiff> run() {
    check_inputs(actual_, reference_, out_);
    if (!out_.problems.empty()) return std::move(out_);
    for (const auto& [tap, layer] : taps_of_model(reference_.flow()))
      LLM_RETURN_IF_ERROR(add(layer, *tap));
    return std::move(out_);
  }

 private:
  Status add(int layer, const Tap& tap) {
    LayerDiffRow row;
    row.layer = layer;
    row.tap = tap.name;
    LLM_RETURN_IF_ERROR(judge(tap.layout, row));
    if (row.fails() && !out_.first_failing) out_.first_failing = out_.rows.size();
    out_.rows.push_back(std::move(row));
    return Ok{};
  }

  Status judge(TapLayout layout, LayerDiffRow& row) {
    if (!reference_.has(row.layer, row.tap)) {
      const auto reason = reference_.meta().taps_absent.find(row.tap);
      const bool declared = reason != reference_.meta().taps_absent.end();
      row.verdict = declared ? TapVerdict::kAbsent : TapVerdict::kMissing;
      row.note = declared ? reason->second : "missing in the reference, which does not say why";
      return Ok{};
    }
    if (!actual_.has(row.layer, row.tap)) {
      row.verdict = TapVerdict::kMissing;
      row.note = "in the reference, not here";
      return Ok{};
    }
    LLM_TRY(TapMatrix actual, actual_.tap(row.layer, row.tap));
    LLM_TRY(TapMatrix expected, reference_.tap(row.layer, row.tap));
    if (actual.features != expected.features) {
      row.verdict = TapVerdict::kFail;
      row.note =
          fmt::format("{} features here, {} in the reference", actual.features, expected.features);
      return Ok{};
    }
    if (layout == TapLayout::kRopeHeads) row.note = align_layouts(row.layer, actual, expected);
    if (!row.note.empty()) {
      row.verdict = TapVerdict::kFail;
      return Ok{};
    }
    row.error = compare(actual.values, expected.values, expected.features);
    row.verdict = TapVerdict::kShown;
    if (row.error.nonfinite_actual + row.error.nonfinite_expected > 0) {
      row.verdict = TapVerdict::kFail;
      row.note = fmt::format("{} NaN or Inf here, {} in the reference", row.error.nonfinite_actual,
                             row.error.nonfinite_expected);
    }
    return Ok{};
  }

  std::string align_layouts(int layer, TapMatrix& actual, TapMatrix& expected) const {
    const DumpMeta& a = actual_.meta();
    const DumpMeta& e = reference_.meta();
    if (a.qk_layout == e.qk_layout) return {};
    std::size_t head_dim = e.head_dim != 0 ? e.head_dim : a.head_dim;
    std::size_t rope_dim = e.rope_dim != 0 ? e.rope_dim : a.rope_dim;
    const auto& dims = e.head_dims.empty() ? a.head_dims : e.head_dims;
    if (const auto at = static_cast<std::size_t>(layer); at < dims.size()) {
      head_dim = dims[at];
      rope_dim = 0;
    }
    const auto& turned = e.rope_dims.empty() ? a.rope_dims : e.rope_dims;
    if (const auto at = static_cast<std::size_t>(layer); at < turned.size()) rope_dim = turned[at];
    std::string note = to_interleaved(actual_, head_dim, rope_dim, actual);
    return note.empty() ? to_interleaved(reference_, head_dim, rope_dim, expected) : note;
  }

  const Dump& actual_;
  const Dump& reference_;
  LayerDiff out_;
};

}  // namespace

std::string_view verdict_name(TapVerdict verdict) {
  constexpr std::string_view kNames[] = {"PASS", "FAIL", "MISSING", "shown", "absent"};
  return kNames[static_cast<std::size_t>(verdict)];
}

std::string tap_origin(int layer, std::string_view tap) {
  const Tap* found = find_tap(layer, tap);
  if (found == nullptr) return std::string(tap);
  if (!found->origin.empty()) return std::string(found->origin);
  const std::string_view words = found->op == TapOp::kEmbedding ? "row of"
                                 : found->op == TapOp::kNorm    ? "RMSNorm with"
                                                                : "matrix product with";
  return fmt::format("{} {}", words, tensor_name(found->weight, layer));
}

Result<LayerDiff> diff_layers(const Dump& actual, const Dump& reference) {
  return Differ(actual, reference).run();
}

void apply_limits(LayerDiff& diff, const Limits& limits) {
  diff.first_failing.reset();
  for (std::size_t i = 0; i < diff.rows.size(); ++i) {
    if (diff.rows[i].verdict == TapVerdict::kShown) judge_row(diff.rows[i], limits);
    if (diff.rows[i].fails() && !diff.first_failing) diff.first_failing = i;
  }
}

Result<LayerDiff> diff_layers(const Dump& actual, const Dump& reference, const Limits& limits) {
  LLM_TRY(LayerDiff diff, diff_layers(actual, reference));
  apply_limits(diff, limits);
  return diff;
}

void half_to_interleaved(TapMatrix& matrix, std::size_t head_dim, std::size_t rope_dim) {
  LLM_CHECK(head_dim > 0 && matrix.features % head_dim == 0 && rope_dim % 2 == 0 &&
            rope_dim <= head_dim);
  std::vector<float> pairs(rope_dim);
  for (std::size_t begin = 0; begin < matrix.values.size(); begin += head_dim) {
    float* head = matrix.values.data() + begin;
    for (std::size_t i = 0; i < rope_dim / 2; ++i) {
      pairs[2 * i] = head[i];
      pairs[2 * i + 1] = head[rope_dim / 2 + i];
    }
    std::ranges::copy(pairs, head);
  }
}

}  // namespace llm
