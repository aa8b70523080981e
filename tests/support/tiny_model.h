#pragma once

#include "engine/model/model.h"
#include "tests/support/require_ok.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/tiny_gguf.h"

namespace llm::test {

/// The model of a GGUF in memory; its file is gone.
inline std::shared_ptr<const Model> loaded(const TinyGguf& gguf,
                                           const LoadOptions& options = {.threads = 1}) {
  const ScratchDirectory folder;
  return require_ok(Model::load(folder.write("m.gguf", gguf.bytes()), options));
}

}  // namespace llm::test
