// Trees over a GGUF's bytes, and what of them a file lacks.

#include "engine/gguf/gguf_manifest.h"

#include "base/hex.h"
#include "tests/engine/manifest_support.h"
#include "tests/support/test.h"

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

}  // namespace
}  // namespace llm::test
