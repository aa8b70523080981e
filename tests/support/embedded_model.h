#pragma once

#include <memory>
#include <string>

#include "engine/model/model.h"
#include "tests/support/require_ok.h"

namespace llm::test {

/// A model of models/; by default on one thread, since tests ask for many passes over little work.
inline std::shared_ptr<const Model> embedded(int threads = 1,
                                             const std::string& name = "fable-3m-q4_k_m.gguf") {
  return require_ok(Model::load(LLM_SOURCE_DIR "/models/" + name, {.threads = threads}));
}

}  // namespace llm::test
