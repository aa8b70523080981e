// A GGUF from its first byte to logits: parsed, checked as a model, loaded, two tokens evaluated;
// and what else reads one: the tree of its hashes, its parts' names.

#include <cmath>

#include "engine/engine.h"
#include "engine/gguf/gguf_tree.h"
#include "engine/model/model_file.h"
#include "tests/fuzz/fuzz.h"

namespace llm::fuzz {
namespace {

/// Whether a run costs little in a sanitized build.
bool is_small(const HyperParameters& config) {
  return config.n_layers <= 8 && config.d_model <= 512 && config.n_vocab <= 4096 &&
         config.most(&LayerSpec::ffn_width) <= 4096;
}

void evaluate(const std::string& path) {
  const auto model = Model::load(path, {.threads = 1});
  if (!model.ok()) return;
  auto sequence = open_sequence(*model, {.context = 8, .batch = 4});
  if (!sequence.ok()) return;
  const auto ids = (*model)->tokenizer().encode("ab c");
  const std::span<const TokenId> some(ids.data(), std::min<std::size_t>(ids.size(), 4));
  const auto logits = (*sequence)->evaluate(some, LogitRows::kLast);
  if (!logits.ok()) return;
  for (const float logit : *logits) require(std::isfinite(logit), "logits are numbers");
}

}  // namespace
}  // namespace llm::fuzz

LLM_FUZZ(input) {
  using namespace llm;
  const std::string_view text = input.rest();
  const auto bytes = fuzz::bytes_of(text);
  const auto gguf = GgufFile::parse(bytes);
  if (!gguf.ok()) return;
  for (const GgufTensor& tensor : gguf->tensors())
    fuzz::require(gguf->tensor_data(tensor).size() == tensor.n_bytes, "a tensor lies in the file");
  const fuzz::MemoryFile file(text);
  std::vector<std::string> warnings;
  (void)open_vocab_file(file.path(), warnings);
  const auto model = open_model_bytes(bytes);
  const auto strict = open_model_bytes(bytes, {.strict = true});
  fuzz::require(model.ok() || !strict.ok(), "what is strictly right is right");
  if (model.ok() && fuzz::is_small(model->config)) fuzz::evaluate(file.path());
}
