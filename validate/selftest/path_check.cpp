#include "validate/selftest/path_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "validate/reference/diff/layer_diff.h"
#include "validate/reference/dump/engine_dump.h"

namespace llm {
namespace {

/// An executor whose fast sequence has published the pages before a window, and a sequence by the
/// definition that has taken them over and stands at the window's begin.
struct DefinitionAt {
  std::unique_ptr<Sequence> fast;
  std::unique_ptr<Sequence> plain;
};

Result<DefinitionAt> definition_at(const ModelPointer& model, KvType kv,
                                   std::span<const TokenId> tokens, const Window& window) {
  // What the fast one gives back must stay to be found, or the definition computes it all.
  const std::size_t n_pages =
      2 * KvGroups(model->config(), kv).size() * KvGroups::pages_for(window.end);
  LLM_TRY(const auto executor,
          Executor::create(model, {.context = window.end, .kv = kv, .kv_pages = n_pages}));
  DefinitionAt out;
  LLM_TRY(out.fast, Executor::open(executor, {.share_prefix = true}));
  LLM_TRY(out.plain, Executor::open(executor, {.share_prefix = true, .reference = true}));
  if (window.begin == 0) return out;
  LLM_RETURN_IF_ERROR(out.fast->evaluate(tokens.first(window.begin), LogitRows::kNone));
  // Pages are taken over up to the first row of logits that is asked for.
  LLM_RETURN_IF_ERROR(out.plain->evaluate(tokens.first(window.begin + 1), LogitRows::kLast));
  out.plain->truncate(window.begin);
  return out;
}

Result<Dump> record(Sequence& sequence, std::span<const TokenId> tokens) {
  Recorder recorder;
  sequence.set_probe(&recorder);
  const auto logits = sequence.evaluate(tokens, LogitRows::kAll);
  sequence.set_probe(nullptr);
  LLM_RETURN_IF_ERROR(logits);
  return std::move(recorder).finish(engine_meta(sequence, "llmcheck", ""));
}

/// Where prefill leaves the definition within a window: the first activation, in the order of the
/// data flow, that differs, with layer, tap, position and what computes it, in words.
Result<std::string> first_wrong_op(const ModelPointer& model, KvType kv,
                                   std::span<const TokenId> tokens, const Window& window) {
  LLM_TRY(const DefinitionAt at, definition_at(model, kv, tokens, window));
  const auto in_window = tokens.subspan(window.begin, window.end - window.begin);
  LLM_TRY(const Dump plain, record(*at.plain, in_window));
  LLM_TRY(const Dump fast, record(*at.fast, in_window));
  LLM_TRY(const LayerDiff diff, diff_layers(fast, plain, exact_limits()));
  if (!diff.first_failing)
    return fmt::format(
        "no activation from position {} on differs while they are recorded, so look at {}what "
        "recording leaves out: products that add to the residual, waits between threads",
        window.begin, window.begin == 0 ? "" : "keys and values of earlier positions, and at ");
  const LayerDiffRow& row = diff.rows[*diff.first_failing];
  LLM_TRY(const TapMatrix a, fast.tap(row.layer, row.tap));
  LLM_TRY(const TapMatrix b, plain.tap(row.layer, row.tap));
  const std::size_t first =
      first_unequal(a.values, b.values) / std::max<std::size_t>(1, b.features);
  return fmt::format("the first activation to differ is {}, from position {} on: look at {}",
                     tap_label(row.layer, row.tap), window.begin + first,
                     tap_origin(row.layer, row.tap));
}

}  // namespace

ModePlan mode_plan(ModelPointer base, Compute compute, KvType kv, Progress progress) {
  std::string name = compute == Compute::kInt8 ? "int8" : "f32";
  if (kv != usual_kv(compute)) name += fmt::format(", {} cache", kv_name(kv));
  const int threads = base->threads();
  return {std::move(base), compute, kv, std::move(name), threads, std::move(progress)};
}

Result<ModelPointer> ModePlan::model(int n_threads, std::optional<Isa> isa,
                                     std::size_t n_layers) const {
  LoadOptions how;
  how.compute = compute;
  how.isa = isa;
  how.threads = n_threads;
  LLM_TRY(ModelPointer model, base->variant(how));
  return n_layers == 0 ? model : model->first_layers(n_layers);
}

double products_per_token(const HyperParameters& config, std::size_t n_layers) {
  const auto d = static_cast<double>(config.d_model);
  double rows = static_cast<double>(config.n_vocab);
  for (const LayerSpec& layer : std::span(config.layers).first(n_layers))
    rows += static_cast<double>(2 * layer.q_rows() + 2 * layer.kv_rows() + 3 * layer.d_ff());
  return d * rows;
}

LogitRows rows_of_long_call(const HyperParameters& config, std::size_t n_layers) {
  const bool are_dear = products_per_token(config, n_layers) < 2 * products_per_token(config, 0);
  return are_dear ? LogitRows::kLast : LogitRows::kAll;
}

std::vector<Isa> other_isas(Isa own) {
  std::vector<Isa> others;
  for (const Isa isa : all_isas()) {
    if (isa_supported(isa) && isa != own) others.push_back(isa);
  }
  return others;
}

Result<LogitTable> by_definition(const ModelPointer& model, KvType kv,
                                 std::span<const TokenId> tokens, std::span<const Window> windows) {
  LogitTable table{.n_vocab = model->config().n_vocab};
  for (const Window& window : windows) {
    LLM_TRY(const DefinitionAt at, definition_at(model, kv, tokens, window));
    LLM_TRY(const auto logits,
            at.plain->evaluate(tokens.subspan(window.begin, window.end - window.begin),
                               LogitRows::kAll));
    table.append(window.begin, logits);
  }
  return table;
}

Result<bool> PathCheck::expect(const std::string& what, Result<LogitTable> table) {
  if (table.ok()) {
    expected_ = std::move(table).value();
    return true;
  }
  auto failed = nonfinite_check(title(model_, what), table.error());
  if (!failed) return std::move(table).error();
  out_.results.push_back(*std::move(failed));
  return false;
}

Result<bool> PathCheck::anchor(const std::string& what, std::span<const Window> windows,
                               const Path& prefill) {
  LLM_TRY(const bool is_finite, expect(what, by_definition(model_, plan_.kv, tokens_, windows)));
  if (!is_finite) {
    out_.results.back().detail += "; the definition's own, so it is the weights: too large for f32";
    out_.anchored = false;
    return false;
  }
  Path named = prefill;
  named.name = what;
  LLM_TRY(Judged judged, judge_path(model_, named));
  plan_.report(++done_, n_paths_);
  out_.anchored = judged.result.passed;
  if (out_.anchored) {
    expected_.complete_with(judged.table);
  } else {
    LLM_RETURN_IF_ERROR(locate(judged, windows));
  }
  anchor_result_ = out_.results.size();
  out_.results.push_back(judged.result);
  fault_ = PrefillFault(std::move(judged));
  return true;
}

/// Adds the op at fault to prefill's verdict, looked for up to the first position that is wrong.
Status PathCheck::locate(Judged& judged, std::span<const Window> windows) const {
  const TableDifference difference = compare_tables(judged.table, expected_);
  if (difference.different == 0) return Ok{};  // not finite, and located
  for (const auto& [begin, end] : windows) {
    if (difference.position < begin || difference.position >= end) continue;
    const std::size_t least = std::min(end, begin + 2);
    const Window wrong{begin, std::max(difference.position + 1, least)};
    auto op = first_wrong_op(model_, plan_.kv, tokens_, wrong);
    if (!op.ok() && op.error().code != ErrorCode::kNonFinite) return std::move(op).error();
    if (op.ok()) judged.result.detail += "; " + *op;
  }
  return Ok{};
}

Result<Judged> PathCheck::judge_path(const ModelPointer& model, const Path& path) const {
  return judge(title(model, path.name), expected_, [&] { return evaluate(model, path, tokens_); });
}

Result<LogitTable> PathCheck::check(const ModelPointer& model, const Path& path) {
  LLM_TRY(Judged judged, judge_path(model, path));
  plan_.report(++done_, n_paths_);
  if (!fault_.explains(judged)) out_.results.push_back(std::move(judged.result));
  return std::move(judged.table);
}

PartOutcome PathCheck::finish() {
  if (fault_.is_there()) out_.results[anchor_result_].detail += fault_.count();
  return std::move(out_);
}

}  // namespace llm
