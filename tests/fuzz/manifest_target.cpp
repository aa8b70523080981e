// Manifests of GGUFs: a tree that is read is written again as it was.

#include "engine/gguf/gguf_hash_lines.h"
#include "engine/gguf/gguf_tree.h"
#include "tests/fuzz/fuzz.h"

LLM_FUZZ(input) {
  using namespace llm;
  const std::string_view text = input.rest();
  const auto lines = GgufHashLines::parse(text);
  if (lines.ok()) {
    const auto again = GgufHashLines::parse(lines->text("a.gguf"));
    fuzz::require(again.ok() && again->lines.size() == lines->lines.size(),
                  "hash lines are read as they are written");
  }
  if (!GgufTree::is_tree(text)) return;
  const auto tree = GgufTree::parse(text);
  if (tree.ok()) fuzz::require(tree->text() == text, "a tree's text is its manifest");
}
