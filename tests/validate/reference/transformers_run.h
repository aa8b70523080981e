#pragma once

#include "engine/forward/taps.h"
#include "tests/support/test.h"
#include "validate/reference/dump/dump.h"

namespace llm::test {

/// transformers' run of the embedded model (models/README.md says how it is frozen).
inline Dump transformers_run() {
  return require_ok(Dump::load(LLM_SOURCE_DIR "/tests/validate/reference/npz/embedded_hf.npz"));
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
