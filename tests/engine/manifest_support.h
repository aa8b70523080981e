#pragma once

#include "engine/gguf/gguf_manifest.h"
#include "tests/support/test.h"
#include "tests/support/tiny_gguf.h"

namespace llm::test {

inline GgufTree tree_of(const std::string& path, int threads = 2) {
  const auto file = require_ok(MappedFile::open(path));
  GgufTree tree;
  tree.segments = require_ok(gguf_segments(file));
  HashWork work;
  add_chunks(work, file, tree.segments);
  REQUIRE(work.run({.threads = threads}).ok());
  return tree;
}

/// A gap between tensors, one after the last, a tail, and tensors that do not lie as they are
/// described.
inline TinyGguf with_gaps() {
  TinyGguf model = TinyGguf::llama();
  const std::uint64_t last = model.default_offset(model.tensors.back().name);
  TinyGguf::Tensor& moved = model.tensor("blk.0.attn_k.weight");
  moved.offset = last + (model.tensors.back().data.size() + 31) / 32 * 32 + 64;
  model.trailing = std::string(64 + moved.data.size() + 40, '\7');
  return model;
}

/// A tensor of 2.5 chunks and one row, and a small one.
inline TinyGguf with_chunks() {
  TinyGguf model;
  model.set_string("general.architecture", "llama");
  const std::size_t n = (5 << 20) / 2 / 4 + 8;
  model.tensors.push_back({"large", {n}, 0, std::string(4 * n, '\3')});
  model.tensors.push_back({"small", {8}, 0, std::string(32, '\4')});
  return model;
}

inline void flip(const std::string& path, std::uint64_t at) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  overwrite(path, at, static_cast<char>(file.get() ^ 0x10));
}

inline std::vector<GgufDifference> compared(const std::string& path, const GgufTree& manifest) {
  return require_ok(compare_manifest(path, manifest, {.threads = 1}));
}

}  // namespace llm::test
