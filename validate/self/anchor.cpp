#include "validate/self/anchor.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "validate/reference/diff/layer_diff.h"
#include "validate/reference/diff/limits_file.h"
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
  LLM_TRY(
      const auto executor,
      Executor::create(
          model, {.context = window.end, .kv = kv, .kv_pages = 2 * KvPool::pages_for(window.end)}));
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

/// The first token whose row of a tap differs.
Result<std::size_t> first_wrong_row(const Dump& fast, const Dump& plain, const LayerDiffRow& at) {
  LLM_TRY(const TapMatrix a, fast.tap(at.layer, at.tap));
  LLM_TRY(const TapMatrix b, plain.tap(at.layer, at.tap));
  const std::size_t n = std::min(a.values.size(), b.values.size());
  std::size_t i = 0;
  while (i < n && std::memcmp(&a.values[i], &b.values[i], sizeof(float)) == 0) ++i;
  return i / std::max<std::size_t>(1, b.features);
}

}  // namespace

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
  LLM_TRY(const std::size_t first, first_wrong_row(fast, plain, row));
  return fmt::format("the first activation to differ is {}, from position {} on: look at {}",
                     tap_label(row.layer, row.tap), window.begin + first,
                     tap_origin(row.layer, row.tap));
}

}  // namespace llm
