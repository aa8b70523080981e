#include "validate/reference/npz/npz.h"

#include "tests/support/test.h"

namespace llm::test {
namespace {

using Bytes = std::vector<std::byte>;

std::string golden(const std::string& name) {
  return LLM_SOURCE_DIR "/tests/validate/reference/npz/" + name;
}

Bytes read_bytes(const std::string& path) {
  const std::string text = read_file(path);
  const auto bytes = std::as_bytes(std::span(text));
  REQUIRE_FALSE(bytes.empty());
  return {bytes.begin(), bytes.end()};
}

/// The rule of make_npz.py.
bool follows_rule(const NpyArray& array) {
  const bool floating = array.as_f32().ok();
  for (std::size_t i = 0; i < array.count(); ++i) {
    if (floating && (*array.as_f32())[i] != static_cast<float>(i) * 0.5F - 2) return false;
    if (!floating && (*array.as_i64())[i] != static_cast<std::int64_t>(i)) return false;
  }
  return true;
}

/// Opens, reads everything. An error of either is an error.
Status read_all(const std::string& path, std::map<std::string, NpyArray>& out) {
  LLM_TRY(const NpzReader reader, NpzReader::open(path));
  for (const auto& key : reader.keys()) {
    LLM_TRY(NpyArray array, reader.read(key));
    out.insert_or_assign(key, std::move(array));
  }
  return Ok{};
}

Status read_all(const std::string& path) {
  std::map<std::string, NpyArray> ignored;
  return read_all(path, ignored);
}

/// Puts a little-endian value at the n-th (0-based) occurrence of a ZIP signature plus `offset`.
template <typename T>
void patch(Bytes& bytes, std::string_view signature, std::size_t offset, T value,
           std::size_t nth = 0) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::size_t at = text.find(signature);
  while (nth-- > 0) at = text.find(signature, at + 1);
  REQUIRE(at != std::string_view::npos);
  std::memcpy(bytes.data() + at + offset, &value, sizeof(value));
}

constexpr std::string_view kLocal = "PK\x03\x04";
constexpr std::string_view kCentral = "PK\x01\x02";
constexpr std::string_view kEnd = "PK\x05\x06";

}  // namespace

TEST_CASE("what NumPy writes is read", "[npz]") {
  const auto* const name = GENERATE("savez.npz", "savez_compressed.npz");
  std::map<std::string, NpyArray> arrays;
  require_ok(read_all(golden(name), arrays));
  CHECK(arrays.size() == 8);
  for (const auto& [key, array] : arrays) {
    CAPTURE(name, key);
    CHECK(follows_rule(array));
  }
  using Shape = std::vector<std::uint64_t>;
  CHECK(arrays["f4"].shape == Shape{3, 4});
  CHECK(arrays["i4"].shape == Shape{2, 2, 2});
  CHECK(arrays["i8"].shape.empty());
  CHECK(arrays["empty"].shape == Shape{0, 4});
  CHECK(arrays["s0000/L001/q"].shape == Shape{2, 8});
  CHECK(arrays["f2"].type == NpyType::kF16);
}

TEST_CASE("Fortran order is transposed, big-endian swapped, other headers read", "[npz]") {
  const auto* const name =
      GENERATE("fortran.npz", "big_endian.npz", "versions.npz", "unseekable.npz");
  CAPTURE(name);
  std::map<std::string, NpyArray> arrays;
  require_ok(read_all(golden(name), arrays));
  CHECK(arrays.size() >= 2);
  for (const auto& [key, array] : arrays) {
    CAPTURE(key);
    CHECK(follows_rule(array));
  }
}

TEST_CASE("a member's name is a key and never a path", "[npz][bad_input]") {
  const auto reader = require_ok(NpzReader::open(golden("traversal.npz")));
  CHECK(reader.keys() == std::vector<std::string>{"../../x", "/tmp/y"});
  CHECK(follows_rule(*reader.read("../../x")));
  CHECK(!reader.contains("notes.txt"));
}

TEST_CASE("archives that are valid but not supported are rejected by name", "[npz][bad_input]") {
  const auto [name, code, words] = GENERATE(table<std::string, ErrorCode, std::string>({
      {"bzip2.npz", ErrorCode::kUnsupported, "a.npy"},
      {"bzip2.npz", ErrorCode::kUnsupported, "method 12 (bzip2)"},
      {"lzma.npz", ErrorCode::kUnsupported, "method 14 (lzma)"},
      {"object.npz", ErrorCode::kUnsupported, "pickle is never loaded"},
      {"complex.npz", ErrorCode::kUnsupported, "'<c8'"},
      {"structured.npz", ErrorCode::kUnsupported, "structured"},
      {"duplicate.npz", ErrorCode::kMalformed, "duplicate member"},
      {"bomb.npz", ErrorCode::kResource, "a.npy (byte 0): expands"},
      {"make_npz.py", ErrorCode::kIo, "No such file"},
      {"", ErrorCode::kIo, "is a directory"},
  }));
  CAPTURE(name);
  must_fail(read_all(golden(name)), code, {words, golden(name)});
}

TEST_CASE("a changed field is rejected with its name", "[npz][bad_input]") {
  const Bytes clean = read_bytes(golden("savez_compressed.npz"));
  const ScratchDirectory folder;
  const auto refused = [&](const std::string& words, const std::function<void(Bytes&)>& damage,
                           ErrorCode code = ErrorCode::kMalformed) {
    Bytes bytes = clean;
    damage(bytes);
    CAPTURE(words);
    must_fail(read_all(folder.write("f.npz", bytes)), code, {words});
  };
  struct Row {
    std::string_view record;
    std::size_t offset;
    std::uint32_t value;
    std::size_t size;  ///< of the value
    const char* words;
    ErrorCode code = ErrorCode::kMalformed;
    std::size_t nth = 0;
  };
  for (const Row& row : std::vector<Row>{
           {kCentral, 8, 1, 2, "encrypted", ErrorCode::kUnsupported},
           {kCentral, 10, 99, 2, "AES", ErrorCode::kUnsupported},
           {kCentral, 10, 0, 2, "f4.npy"},         // the method
           {kLocal, 8, 0, 2, "differ in method"},  // the method
           {kLocal, 6, 2, 2, "differ in method"},  // flags
           {kCentral, 16, 0xDEADBEEF, 4, "CRC"},
           {kCentral, 20, 0x7FFFFFFF, 4, "f4.npy"},  // the compressed size
           {kCentral, 24, 0x80000000, 4, "f4.npy"},  // the size
           {kCentral, 24, 0xFFFFFFFF, 4, "zip64"},   // the size, without its field
           {kCentral, 42, 1, 4, "no local header"},
           {kCentral, 42, 0, 4, "name", ErrorCode::kMalformed, 1},  // of another member
           {kCentral, 42, 0xFFFFFFF0, 4, "beyond"},
           {kCentral, 34, 1, 2, "another disk"},
           {kEnd, 10, 9, 2, "zip"},  // one entry more
           {kEnd, 10, 0xFFFF, 2, "zip64 locator"},
           {kEnd, 12, 46, 4, "central directory"},          // its size
           {kEnd, 16, 0x7FFFFFFF, 4, "central directory"},  // its offset
           {kLocal, 30, 'g', 1, "name"},
       }) {
    CAPTURE(row.offset, row.value);
    refused(
        row.words,
        [&](Bytes& b) {
          for (std::size_t i = 0; i < row.size; ++i)
            patch(b, row.record, row.offset + i, static_cast<std::uint8_t>(row.value >> 8 * i),
                  row.nth);
        },
        row.code);
  }
  refused("bad CRC", [](Bytes& b) {
    patch<std::uint32_t>(b, kCentral, 16, 0xDEADBEEF);
    patch<std::uint32_t>(b, kLocal, 14, 0xDEADBEEF);
  });
  refused("after its last entry", [](Bytes& b) {
    patch<std::uint16_t>(b, kEnd, 8, 7);
    patch<std::uint16_t>(b, kEnd, 10, 7);
  });
  refused("end of central directory", [](Bytes& b) { b.resize(b.size() + 3); });
}

TEST_CASE("a size that is wrong in every place is found while unpacking", "[npz][bad_input]") {
  // f4 of (3, 4): 128 + 48 bytes. NumPy's local header carries its sizes in a zip64 field, after
  // 30 bytes and the name "f4.npy": id, length, uncompressed, compressed.
  const ScratchDirectory folder;
  for (const std::uint32_t lie : {175U, 177U, 130U, 11U, 0U, 1U << 20, 1U << 23}) {
    CAPTURE(lie);
    Bytes bytes = read_bytes(golden("savez_compressed.npz"));
    patch<std::uint32_t>(bytes, kCentral, 24, lie);
    patch<std::uint64_t>(bytes, kLocal, 30 + 6 + 4, lie);
    must_fail(read_all(folder.write("f.npz", bytes)), ErrorCode::kMalformed, {"f4.npy"});
  }
}

TEST_CASE("a deflate stream without its last bytes is refused", "[npz][bad_input]") {
  const Bytes clean = read_bytes(golden("savez_compressed.npz"));
  const auto entries = require_ok(read_zip_directory(clean));
  const auto compressed = static_cast<std::uint32_t>(entries.front().compressed);
  const ScratchDirectory folder;
  for (std::uint32_t less = 1; less <= compressed; ++less) {
    CAPTURE(less);
    Bytes bytes = clean;
    patch<std::uint32_t>(bytes, kCentral, 20, compressed - less);
    patch<std::uint64_t>(bytes, kLocal, 30 + 6 + 12, compressed - less);
    must_fail(read_all(folder.write("f.npz", bytes)), ErrorCode::kMalformed, {"f4.npy"});
  }
}

TEST_CASE("members that share bytes are refused", "[npz][bad_input]") {
  Bytes bytes = read_bytes(golden("savez.npz"));
  const std::uint32_t reaching = 176 + 20;  // 20 bytes into the next local header
  patch<std::uint32_t>(bytes, kCentral, 20, reaching);
  patch<std::uint32_t>(bytes, kCentral, 24, reaching);
  patch<std::uint64_t>(bytes, kLocal, 30 + 6 + 4, reaching);
  patch<std::uint64_t>(bytes, kLocal, 30 + 6 + 12, reaching);
  const ScratchDirectory folder;
  must_fail(read_all(folder.write("f.npz", bytes)), ErrorCode::kMalformed,
            {"f8.npy", "overlaps member f4.npy"});
}

TEST_CASE("a declared size beyond the cap is refused before it is allocated", "[npz][bad_input]") {
  Bytes bytes = read_bytes(golden("savez_compressed.npz"));
  patch<std::uint32_t>(bytes, kCentral, 24, 0xF0000000U);
  patch<std::uint64_t>(bytes, kLocal, 30 + 6 + 4, 0xF0000000U);
  const ScratchDirectory folder;
  must_fail(read_all(folder.write("f.npz", bytes)), ErrorCode::kResource);
  NpzLimits limits;
  limits.max_member_bytes = 150;
  must_fail(NpzReader::open(golden("savez.npz"), limits), ErrorCode::kResource, {"f4.npy", "cap"});
}

TEST_CASE("every truncation is refused, with a ZIP field", "[npz][bad_input]") {
  const auto* const name = GENERATE("savez.npz", "savez_compressed.npz", "unseekable.npz");
  const Bytes whole = read_bytes(golden(name));
  const ScratchDirectory folder;
  for (std::size_t n = 0; n < whole.size(); ++n) {
    const auto status = read_all(folder.write("f.npz", std::span(whole).first(n)));
    if (status.ok() || status.error().code != ErrorCode::kMalformed) FAIL(name << " cut to " << n);
    if (n == 0) CHECK_THAT(status.error().to_string(), Contains("empty file"));
  }
}

TEST_CASE("no flipped bit changes a value unnoticed", "[npz][bad_input]") {
  const Bytes whole = read_bytes(golden("savez_compressed.npz"));
  const ScratchDirectory folder;
  std::size_t refused = 0;
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    Bytes bytes = whole;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    std::map<std::string, NpyArray> arrays;
    refused += read_all(folder.write("f.npz", bytes), arrays).ok() ? 0 : 1;
    for (const auto& [key, array] : arrays)
      if (!follows_rule(array)) FAIL("bit " << bit << " of byte " << bit / 8 << ", key " << key);
  }
  // Times, versions and attributes are free to change; far more than half of all bits are not.
  CHECK(refused > whole.size() * 8 / 2);
}

TEST_CASE("written archives read back bit for bit", "[npz]") {
  // zip64 from 0 on exercises the wide records that files of 4 GiB need.
  const auto zip64_from = GENERATE(values<std::uint64_t>({0xFFFFFFFF, 0, 200}));
  CAPTURE(zip64_from);
  std::map<std::string, NpyArray> arrays;
  REQUIRE(read_all(golden("savez.npz"), arrays).ok());
  const ScratchDirectory folder;
  {
    auto writer = require_ok(NpzWriter::create(folder / "f.npz", zip64_from));
    for (const auto& [key, array] : arrays) REQUIRE(writer.add(key, array).ok());
    CHECK(!std::filesystem::exists(folder / "f.npz"));
    REQUIRE(writer.finish().ok());
  }
  std::map<std::string, NpyArray> again;
  require_ok(read_all(folder / "f.npz", again));
  REQUIRE(again.size() == arrays.size());
  for (const auto& [key, array] : arrays) {
    CHECK(again[key].shape == array.shape);
    CHECK(again[key].data == array.data);
  }
}

TEST_CASE("more members than 16 bits count", "[npz]") {
  const ScratchDirectory folder;
  auto writer = require_ok(NpzWriter::create(folder / "f.npz"));
  constexpr int kMembers = 70000;
  for (int i = 0; i < kMembers; ++i)
    REQUIRE(writer.add(std::to_string(i), NpyType::kI32, {}, std::as_bytes(std::span(&i, 1))).ok());
  REQUIRE(writer.finish().ok());
  const auto reader = require_ok(NpzReader::open(folder / "f.npz"));
  CHECK(reader.keys().size() == kMembers);
  CHECK(reader.read("69999")->as_i64().value() == std::vector<std::int64_t>{69999});
}

TEST_CASE("an unfinished archive leaves nothing behind", "[npz]") {
  const ScratchDirectory folder;
  {
    auto writer = require_ok(NpzWriter::create(folder / "f.npz"));
    const int value = 1;
    REQUIRE(writer.add("a", NpyType::kI32, {}, std::as_bytes(std::span(&value, 1))).ok());
  }
  CHECK(folder.count() == 0);
  auto full = require_ok(NpzWriter::create("/dev/full"));
  const std::vector<std::byte> data(1 << 16);
  const std::uint64_t shape[] = {data.size()};
  const bool added = full.add("a", NpyType::kU8, shape, data).ok();
  CHECK(!(added && full.finish().ok()));
}

}  // namespace llm::test
