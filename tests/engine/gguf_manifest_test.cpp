// Trees over a GGUF's bytes, and what of them a file lacks.

#include "engine/gguf/gguf_manifest.h"

#include "base/hex.h"
#include "engine/gguf/gguf_split.h"
#include "tests/engine/manifest_support.h"

namespace llm::test {
namespace {

using Kind = GgufSegment::Kind;

TEST_CASE("segments tile a file", "[gguf][manifest]") {
  const ScratchDirectory directory;
  const TinyGguf model = with_gaps();
  const auto bytes = model.bytes();
  const auto file = MappedFile::open(directory.write("m.gguf", bytes));
  const auto segments = require_ok(gguf_segments(*file));
  std::uint64_t end = 0;
  for (const GgufSegment& segment : segments) {
    CHECK(segment.offset == end);
    CHECK(segment.bytes > 0);
    end += segment.bytes;
  }
  CHECK(end == bytes.size());
  CHECK(segments.front().line() == "metadata " + std::to_string(model.header_bytes()));
  CHECK(std::ranges::count(segments, Kind::kTensor, &GgufSegment::kind) == 12);
  CHECK(std::ranges::count(segments, Kind::kPadding, &GgufSegment::kind) == 3);
  CHECK(segments.back().title() == "padding after tensor \"blk.0.attn_k.weight\"");
  for (const GgufSegment& segment : segments) {
    // with_gaps() says where the moved one is, and writes it elsewhere.
    if (segment.kind != Kind::kTensor || segment.name == "blk.0.attn_k.weight") continue;
    const auto data = file->bytes().subspan(segment.offset, segment.bytes);
    const std::string& expected = const_cast<TinyGguf&>(model).tensor(segment.name).data;
    CHECK(std::ranges::equal(data, std::as_bytes(std::span(expected))));
  }
}

TEST_CASE("a flipped byte changes the root, wherever it is, and is named", "[gguf][manifest]") {
  const ScratchDirectory directory;
  const TinyGguf model = with_gaps();
  const auto bytes = model.bytes();
  const std::string path = directory.write("m.gguf", bytes);
  const GgufTree tree = tree_of(path);
  REQUIRE(compared(path, tree).empty());
  std::vector<std::uint64_t> places;
  for (const GgufSegment& segment : tree.segments) {
    const std::uint64_t end = segment.offset + segment.bytes;
    const std::uint64_t step = segment.kind == Kind::kPadding ? 1 : 131;
    for (std::uint64_t at = segment.offset; at < end; at += step) places.push_back(at);
    places.push_back(end - 1);
  }
  for (std::uint64_t at = 1; at < 40; ++at) places.push_back(at);
  for (const std::uint64_t at : places) {
    flip(path, at);
    const auto differences = compared(path, tree);
    flip(path, at);
    CAPTURE(at);
    // A file that still parses may mean other tensors now; one of the differences has the byte.
    const bool named = std::ranges::any_of(differences, [&](const GgufDifference& difference) {
      return difference.bytes && difference.bytes->first <= at && at < difference.bytes->second;
    });
    CHECK(named);
    const auto segment = std::ranges::find_if(
        tree.segments, [&](const GgufSegment& one) { return at < one.offset + one.bytes; });
    if (segment->kind == Kind::kMetadata) continue;
    REQUIRE(differences.size() == 1);
    CHECK(differences[0].title == segment->title() + " chunk 0");
    CHECK(differences[0].name == segment->name);
  }
  CHECK(compared(path, tree).empty());
}

TEST_CASE("differing chunks are named with their bytes", "[gguf][manifest]") {
  const ScratchDirectory directory;
  const std::string path = directory.write("m.gguf", with_chunks().bytes());
  const GgufTree tree = tree_of(path);
  const GgufSegment& large = tree.segments[1];
  REQUIRE(large.chunks.size() == 3);
  constexpr std::uint64_t kMiB = 1 << 20;
  flip(path, large.offset + kMiB);
  auto found = compared(path, tree);
  REQUIRE(found.size() == 1);
  CHECK(found[0].chunks == std::pair<std::size_t, std::size_t>(1, 1));
  CHECK(found[0].bytes == std::pair(large.offset + kMiB, large.offset + 2 * kMiB));
  const Error error = integrity_error(found);
  CHECK(error.code == ErrorCode::kIntegrity);
  CHECK_THAT(error.to_string(), Contains(path + ": tensor \"large\" chunk 1 (byte "));
  flip(path, large.offset + large.bytes - 1);
  found = compared(path, tree);
  REQUIRE(found.size() == 1);
  CHECK(found[0].chunks == std::pair<std::size_t, std::size_t>(1, 2));
  CHECK(found[0].bytes == std::pair(large.offset + kMiB, large.offset + large.bytes));
  flip(path, large.offset + kMiB);
  flip(path, large.offset);
  CHECK(compared(path, tree).size() == 2);
}

TEST_CASE("a tree is the same for any number of threads", "[gguf][manifest]") {
  const ScratchDirectory directory;
  TinyGguf model = with_chunks();
  const std::size_t n = (9 << 20) / 4;  // more chunks than a job has
  model.tensors.push_back({"larger", {n}, 0, std::string(4 * n, '\5')});
  const std::string path = directory.write("m.gguf", model.bytes());
  const GgufTree tree = tree_of(path, 1);
  const std::string bytes = test::read_file(path);
  for (const GgufSegment& segment : tree.segments) {
    for (std::size_t i = 0; i < segment.chunks.size(); ++i) {
      const std::size_t begin = i << 20;
      const std::size_t size = std::min<std::size_t>(1 << 20, segment.bytes - begin);
      const std::string chunk = '\0' + bytes.substr(segment.offset + begin, size);
      CHECK(hex_text(segment.chunks[i]) == sha256_hex(std::as_bytes(std::span(chunk))));
    }
  }
  const std::string one = tree.text();
  CHECK(tree_of(path, 2).text() == one);
  CHECK(tree_of(path, 5).text() == one);
}

TEST_CASE("other tensors than the manifest's are named", "[gguf][manifest]") {
  const ScratchDirectory directory;
  const GgufTree tree = tree_of(directory.write("a.gguf", TinyGguf::llama().bytes()));
  TinyGguf model = TinyGguf::llama();
  const auto titles = [&] {
    std::vector<std::string> found;
    for (const auto& one : compared(directory.write("b.gguf", model.bytes()), tree))
      found.push_back(one.title + ": " + one.message);
    return found;
  };
  const auto has = [](const std::vector<std::string>& all, const std::string& text) {
    CAPTURE(all, text);
    CHECK(std::ranges::any_of(
        all, [&](const std::string& one) { return one.find(text) != std::string::npos; }));
  };
  SECTION("one is missing, one more is there") {
    model.remove_tensor("blk.0.attn_q.weight");
    model.tensors.push_back({"added", {8}, 0, std::string(32, '\0')});
    has(titles(), "tensor \"blk.0.attn_q.weight\": found none, need F16 32x32, 2048 bytes");
    has(titles(), "tensor \"added\": found F32 8, 32 bytes, need none");
  }
  SECTION("another shape of as many bytes") {
    model.tensor("blk.0.attn_q.weight").dims = {64, 16};
    has(titles(), "found F16 64x16, 2048 bytes, need F16 32x32, 2048 bytes");
  }
  SECTION("metadata of another size: the tensors are still compared") {
    model.set_string("general.name", std::string(1000, 'x'));
    CHECK(titles().size() == 1);
    has(titles(), "metadata: found");
  }
  SECTION("a manifest of the same segments in another order") {
    GgufTree other = tree;
    std::swap(other.segments[1], other.segments[2]);
    const auto found = compared(directory.write("b.gguf", model.bytes()), other);
    REQUIRE(found.size() == 1);
    CHECK(found[0].title == "order of tensors");
  }
}

TEST_CASE("a file that is no GGUF any more is compared in place", "[gguf][manifest]") {
  const ScratchDirectory directory;
  const auto bytes = with_gaps().bytes();
  const std::string path = directory.write("m.gguf", bytes);
  const GgufTree tree = tree_of(path);
  flip(path, 0);
  auto found = compared(path, tree);
  REQUIRE(found.size() == 1);
  CHECK(found[0].title == "metadata chunk 0");
  SECTION("cut short") {
    const std::size_t size = tree.segments[2].offset + 1;
    std::filesystem::resize_file(path, size);
    found = compared(path, tree);
    CHECK(found.size() == tree.segments.size() - 1);
    CHECK_THAT(found[1].message, Contains("1 bytes, need"));
  }
  SECTION("longer") {
    std::ofstream(path, std::ios::app) << "xyz";
    found = compared(path, tree);
    REQUIRE(found.size() == 2);
    CHECK_THAT(found[1].title, Contains("padding after"));
    const std::string other = directory.write("n.gguf", with_chunks().bytes());
    const GgufTree without_padding = tree_of(other);
    flip(other, 0);
    std::ofstream(other, std::ios::app) << "xyz";
    found = compared(other, without_padding);
    REQUIRE(found.size() == 2);
    CHECK(found[1].title == "padding after tensor \"small\"");
    CHECK(found[1].message == "found 3 bytes, need none");
  }
}

// ----
// Manifests as texts, which may be hostile.

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

TEST_CASE("hostile manifests are rejected by line", "[gguf][manifest][bad_input]") {
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

TEST_CASE("a manifest that is truncated or has a changed byte is rejected",
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
