// Manifests as texts, which may be hostile.

#include "engine/gguf/gguf_split.h"
#include "tests/engine/manifest_support.h"
#include "tests/support/test.h"

namespace llm::test {
namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string line_of(const std::string& text, std::size_t number) {
  std::size_t begin = 0;
  for (std::size_t i = 1; i < number; ++i) begin = text.find('\n', begin) + 1;
  return text.substr(begin, text.find('\n', begin) + 1 - begin);
}

TEST_CASE("hostile manifests are refused by line", "[gguf][manifest][bad_input]") {
  const ScratchDirectory directory;
  const GgufTree tree = tree_of(directory.write("m.gguf", with_chunks().bytes()));
  const std::string good = tree.text();
  // 1 version, 2 root, 3 metadata, 4 its chunk, 5 large, 6 to 8 its chunks, 9 small, 10 its chunk
  REQUIRE(line_of(good, 9) == "tensor 32 F32 8 small\n");
  const auto parsed = require_ok(GgufTree::parse(good));
  CHECK(parsed.text() == good);
  CHECK(parsed.root() == tree.root());

  const auto refused = [](const std::string& bad, const std::string& words,
                          ErrorCode code = ErrorCode::kMalformed) {
    CAPTURE(words);
    test::must_fail(GgufTree::parse(bad), code, {words});
  };
  struct Replaced {
    const char* from;
    const char* to;
    const char* words;
    ErrorCode code = ErrorCode::kMalformed;
  };
  for (const Replaced& row : std::vector<Replaced>{
           {"tree 1", "tree 2", "line 1 (byte 0): found \"gguf-tree 2\", need",
            ErrorCode::kUnsupported},
           {"root ", "rout ", "line 2"},
           {"small", "smell", "which the lines below it give"},
           {"metadata ", "metadata 9223372036853727232\nx", "need 8796093022207 hashes"},
           {"metadata ", "metadata -", "line 3"},
           {"metadata ", "metadata 0", "line 3"},
           {"tensor 32 ", "tensor 0 ", "line 9"},
           {"tensor 32 ", "tensor 9223372036854775807 ", "sum of bytes"},
           {"32 F32 8", "36 F32 8", "line 9"},
           {"F32 8", "F33 8", "found the type \"F33\"", ErrorCode::kUnsupported},
           {"F32 8", "f32 8", "f32", ErrorCode::kUnsupported},
           {"F32 8", "F32 4294967296x4294967296x8", "found 32 bytes, need those of"},
           {"F32 8", "F32 8x1x1x1x1", "need 1 to 4"},
           {"F32 8", "F32 8x", "need 1 to 4"},
           {"F32 8 small", "F32 small", "need bytes, type, dims and name"},
           {"F32 8", "Q8_0 8", "need 1 to 4 of Q8_0"},
           {"small", "large", "found the tensor \"large\" twice"},
           {"8 small", "8 ", "need a name"},
           {"small", "s\x1b[1m", "need a name"},
           {"metadata", "padding", "need metadata first"},
           {"tensor 32", "tenser 32", "need \"metadata\""},
       }) {
    CAPTURE(row.from, row.to);
    refused(replaced(good, row.from, row.to), row.words, row.code);
  }
  refused(replaced(good, "small", std::string(64, 's')), "need a name");
  const std::string zeros = std::string(64, '0') + "\n";
  refused(std::string(good).replace(12, 64, std::string(64, 'A')), "line 2");
  refused(std::string(good).replace(17, 64, std::string(64, 'a')),
          "root (byte 12): found aaaaaaaa");
  std::string leaf = good;
  leaf[leaf.size() - 2] = leaf[leaf.size() - 2] == '0' ? '1' : '0';
  refused(leaf, "which the lines below it give");
  refused(good.substr(0, 12 + 5 + 65), "found no segment");
  refused(good.substr(0, 40), "found the end");
  refused(good.substr(0, good.size() - 65), "need 1 hashes");
  refused(good + zeros, "need \"metadata\"");
  refused(good + "padding 1\n" + zeros + "padding 1\n" + zeros, "found padding twice");
}

TEST_CASE("a manifest cut anywhere or with any byte changed is refused",
          "[gguf][manifest][bad_input]") {
  const ScratchDirectory directory;
  const std::string good = tree_of(directory.write("m.gguf", with_gaps().bytes())).text();
  for (std::size_t n = 0; n < good.size(); ++n)
    if (GgufTree::parse(good.substr(0, n)).ok()) FAIL("accepted " << n << " bytes");
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] ^= 1;
    if (GgufTree::parse(bad).ok()) FAIL("accepted byte " << at);
  }
}

}  // namespace
}  // namespace llm::test
