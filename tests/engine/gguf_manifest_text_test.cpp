// Manifests as texts, which may be hostile: trees, and the lines of gguf-hash.

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

TEST_CASE("the hashes of gguf-hash", "[gguf][manifest]") {
  const auto hash = [](HashKind kind, const std::string& text) {
    AnyHash whole(kind);
    for (const char& c : text) whole.update(std::as_bytes(std::span(&c, 1)));
    return whole.hex();
  };
  // FIPS 180-4's examples; the values of xxhsum 0.8.
  CHECK(hash(HashKind::kSha256, "abc").starts_with("ba7816bf8f01cfea"));
  CHECK(hash(HashKind::kSha1, "abc") == "a9993e364706816aba3e25717850c26c9cd0d89d");
  CHECK(hash(HashKind::kXxh64, "") == "ef46db3751d8e999");
  CHECK(hash(HashKind::kXxh64, "abc") == "44bc2cf5ad770999");
  CHECK(hash(HashKind::kXxh3, "") == "2d06800538d394c2");
  CHECK(hash(HashKind::kXxh3, "abc") == "78af5f94892f3950");
  for (const HashKind kind : kHashKinds) {
    CHECK(hash_kind_from_name(hash_kind_name(kind)) == kind);
    CHECK(hash(kind, "abc").size() == hash_kind_digits(kind));
  }
}

TEST_CASE("lines of gguf-hash name the tensor that differs", "[gguf][manifest]") {
  const ScratchDirectory directory;
  const std::string path = directory.write("m.gguf", TinyGguf::llama().bytes());
  const auto open = require_ok(open_gguf_file(path));
  const auto lines = require_ok(hash_lines(open.file, open.gguf, kHashKinds, {.threads = 2}));
  REQUIRE(lines.lines.size() == 13 * 4);
  const std::string text = lines.text("C:/models/a.gguf");
  CHECK_THAT(text, Contains("\nsha1      ") && Contains("\nxxh64     ") &&
                       Contains("  C:/models/a.gguf:output_norm.weight\n"));
  auto parsed = require_ok(GgufHashLines::parse(text));
  CHECK(parsed.text("C:/models/a.gguf") == text);
  CHECK(compared(path, parsed).empty());

  const GgufTensor* tensor = open.gguf.find_tensor("blk.0.ffn_up.weight");
  flip(path, open.gguf.data_offset() + tensor->offset + 5);
  const auto differences = compared(path, parsed);
  REQUIRE(differences.size() == 8);
  CHECK(differences[0].title == "sha256 of tensor \"blk.0.ffn_up.weight\"");
  CHECK(differences[0].bytes->first == open.gguf.data_offset() + tensor->offset);
  CHECK(differences[4].title == "sha256 of all tensors");
  flip(path, open.gguf.data_offset() + tensor->offset + 5);

  // --no-layer
  GgufHashLines all;
  all.lines = {parsed.lines.back()};
  CHECK(compared(path, all).empty());
  std::erase_if(parsed.lines, [](const GgufHashLine& line) {
    return line.tensor == "output.weight" && line.kind == HashKind::kXxh3;
  });
  parsed.lines[0].tensor = "other";
  const auto missing = compared(path, parsed);
  REQUIRE(missing.size() == 3);
  CHECK_THAT(missing[0].message, Contains("found no such tensor"));
  CHECK_THAT(missing[1].message, Contains("need its line in the manifest"));
}

TEST_CASE("lines that are not of gguf-hash are refused by number", "[gguf][manifest][bad_input]") {
  const std::string hex(16, 'a');
  const std::string all = "xxh64 " + hex + " m.gguf\n";
  const struct {
    std::string text;
    std::string words;
    ErrorCode code = ErrorCode::kMalformed;
  } rows[] = {
      {"", "found nothing"},
      {"{\"root\": 1}\n", "line 1: found {\"root\":, need sha256"},
      {all + "uuid 0123 m.gguf\n", "line 2: found a uuid", ErrorCode::kUnsupported},
      {"xxh64 " + hex + "a m.gguf\n", "17 characters, need 16"},
      {"xxh64 " + std::string(16, 'G') + " m.gguf\n", "hex digits"},
      {"xxh64 " + hex + "\n", "found no name"},
      {all + all, "line 2: found xxh64 of m.gguf twice"},
      {all + "xxh64 " + hex + " n.gguf:a\n", "line 2: found n.gguf:a"},
      {all + "xxh64 " + hex + " m.gguf/a\n", "line 2: found m.gguf/a"},
      {"xxh64 " + hex + " m.gguf:a\nxxh64 " + hex + " m.gguf:bc\n", "the line of all its tensors"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.text);
    test::must_fail(GgufHashLines::parse(row.text), row.code, {row.words});
  }
  CHECK(GgufHashLines::parse("\n" + all + "\r\n" + "xxh64  " + hex + "\tm.gguf:a b:c\n").ok());
}

}  // namespace
}  // namespace llm::test
