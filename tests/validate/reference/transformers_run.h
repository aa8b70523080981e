#pragma once

#include "engine/forward/activation_points.h"
#include "tests/support/test.h"
#include "validate/reference/dump/dump.h"
#include "validate/reference/dump/engine_dump.h"

namespace llm::test {

/// transformers' run of the embedded model (models/README.md says how it is frozen).
inline Dump transformers_run() {
  return require_ok(Dump::load(LLM_SOURCE_DIR "/tests/validate/reference/npz/embedded_hf.npz"));
}

/// A run of the model on `tokens`, in one call unless `steps` says where others begin.
inline Dump recorded(const std::shared_ptr<const Model>& model, KvType kv,
                     std::span<const TokenId> tokens, std::span<const std::int64_t> steps = {}) {
  return require_ok(record_activations(model, {.context = tokens.size(), .kv = kv}, false, tokens,
                                       "test", "", steps));
}

/// 1, 38, 75, ...
inline std::vector<TokenId> some_tokens(int n) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back(1 + 37 * i);
  return tokens;
}

/// `dump` again in one call, under `meta` and with its taps changed; false drops one.
inline Dump rewritten(
    const Dump& dump, const DumpMeta& meta,
    const std::function<bool(int layer, std::string_view tap, TapMatrix& rows)>& change) {
  Recorder recorder;
  const std::vector<int> tokens(dump.tokens().begin(), dump.tokens().end());
  recorder.begin_step(tokens, 0);
  for (const auto& [row, layer] : taps_of_model(dump.flow())) {
    TapMatrix rows = require_ok(dump.tap(layer, row->name));
    if (change(layer, row->name, rows))
      recorder.tap(layer, row->name, rows.values, rows.features, 0);
  }
  return require_ok(std::move(recorder).finish(meta));
}

}  // namespace llm::test
