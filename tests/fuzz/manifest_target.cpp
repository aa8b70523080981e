// Manifests of GGUFs: a tree that is read is written again as it was.

#include "engine/gguf/gguf_tree.h"
#include "tests/fuzz/fuzz.h"

LLM_FUZZ(input) {
  using namespace llm;
  const std::string_view text = input.rest();
  const auto tree = GgufTree::parse(text);
  if (tree.ok()) fuzz::require(tree->text() == text, "a tree's text is its manifest");
}
