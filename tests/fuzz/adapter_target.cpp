// Adapters: read, held against a model's matrices, and merged into a matrix of their size.

#include <cmath>

#include "engine/model/adapter.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tiny_model.h"

LLM_FUZZ(input) {
  using namespace llm;
  static const auto model = fuzz::tiny_model("phi3");
  const fuzz::MemoryFile file(input.rest());
  const auto adapter = open_adapter_file(file.path());
  const auto loaded = Adapter::load(file.path(), model->config(), model->weights(), false);
  fuzz::require(adapter.ok() || !loaded.ok(), "what is loaded can be read");
  if (!adapter.ok()) return;
  for (const FileUpdate& update : adapter->updates) {
    fuzz::require(update.rank() == update.b->dims[0], "A and B have one rank");
    GgufTensor tensor;
    tensor.dims = {update.a->dims[0], update.b->dims[1], 1, 1};
    if (!check_update(update, &tensor).ok() || tensor.dims[0] * update.rank() > 1 << 16) continue;
    std::vector<float> row(tensor.dims[0]);
    merge_update(*adapter, update, 1.0f, tensor.dims[1] - 1, row);
  }
  if (!loaded.ok()) return;
  // One tensor of this model holds several matrices.
  fuzz::require((*loaded)->size() >= adapter->updates.size(), "each update has its matrix");
  fuzz::require((*loaded)->width() > 0, "an update has a rank");
}
