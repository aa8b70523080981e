#include "base/byte_reader.h"

#include "base/checked_size.h"
#include "base/result.h"
#include "tests/base/bytes.h"

namespace llm {
namespace {

const std::string kSample("\x01\x02\x03\x04\xFF\x00\x00\x80\x3F\x2A", 10);

std::string length_prefixed(std::uint64_t length, const std::string& text) {
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

}  // namespace

TEST_CASE("values are little-endian and follow each other", "[base][byte_reader]") {
  ByteReader reader(bytes_of(kSample));
  CHECK(reader.read<std::uint32_t>("a") == 0x04030201);
  CHECK(reader.read<std::int8_t>("b") == -1);
  CHECK(reader.field_offset() == 4);
  CHECK(reader.read<float>("c") == 1.0F);
  CHECK(reader.offset() == 9);
  CHECK(reader.remaining() == 1);
  CHECK(reader.read<std::uint8_t>("d") == 42);
  CHECK(reader.remaining() == 0);
  CHECK(reader.ok());
  CHECK(reader.read_bytes(0, "nothing").empty());
  CHECK(reader.ok());
}

TEST_CASE("every truncation names its field and stays", "[base][byte_reader]") {
  for (std::size_t size = 0; size < kSample.size(); ++size) {
    CAPTURE(size);
    const std::string part = kSample.substr(0, size);
    ByteReader reader(bytes_of(part));
    reader.read<std::uint32_t>("a");
    reader.read<std::int8_t>("b");
    reader.read<float>("c");
    reader.read<std::uint8_t>("d");
    REQUIRE_FALSE(reader.ok());
    const std::string field = size < 4 ? "a" : size < 5 ? "b" : size < 9 ? "c" : "d";
    CHECK(reader.error().code == ErrorCode::kMalformed);
    CHECK(reader.error().field == field);
    CHECK(*reader.error().offset == (size < 4 ? 0U : size < 5 ? 4U : size < 9 ? 5U : 9U));
    CHECK_THAT(reader.error().message, Catch::Matchers::Contains("truncated"));
    CHECK(reader.read<std::uint8_t>("later") == 0);
    CHECK(reader.error().field == field);
  }
}

TEST_CASE("after a failure nothing is read, even what would fit", "[base][byte_reader]") {
  ByteReader reader(bytes_of(kSample));
  CHECK(reader.read_bytes(11, "too long").empty());
  CHECK(reader.offset() == 0);
  CHECK(reader.read<std::uint8_t>("fits") == 0);
  CHECK(reader.read_string(100, "string").empty());
  CHECK(reader.error().field == "too long");
  reader.fail(ErrorCode::kUnsupported, "other", "later");
  CHECK(reader.error().field == "too long");
}

TEST_CASE("sizes near 2^64 do not wrap", "[base][byte_reader]") {
  for (const std::uint64_t size : {UINT64_MAX, UINT64_MAX - 9, std::uint64_t{1} << 63}) {
    ByteReader reader(bytes_of(kSample));
    reader.read<std::uint64_t>("first");
    CHECK(reader.read_bytes(size, "huge").empty());
    CHECK_FALSE(reader.ok());
    CHECK(reader.offset() == 8);
  }
}

TEST_CASE("strings carry their length and obey the cap", "[base][byte_reader]") {
  const std::string nul("a\0b", 3);
  const std::string good = length_prefixed(3, nul);
  ByteReader reader(bytes_of(good));
  CHECK(reader.read_string(3, "s") == nul);
  CHECK(reader.ok());
  CHECK(reader.field_offset() == 0);
  ByteReader capped(bytes_of(good));
  CHECK(capped.read_string(2, "s").empty());
  CHECK_THAT(capped.error().message, Catch::Matchers::Contains("length 3, need at most 2"));
  const std::string cut = length_prefixed(4, nul);
  ByteReader truncated(bytes_of(cut));
  CHECK(truncated.read_string(UINT64_MAX, "s").empty());
  CHECK_THAT(truncated.error().message, Catch::Matchers::Contains("truncated"));
  const std::string no_length = good.substr(0, 7);
  ByteReader headless(bytes_of(no_length));
  CHECK(headless.read_string(UINT64_MAX, "s").empty());
  CHECK_FALSE(headless.ok());
  const std::string huge = length_prefixed(UINT64_MAX, nul);
  ByteReader wrapping(bytes_of(huge));
  CHECK(wrapping.read_string(UINT64_MAX, "s").empty());
  CHECK_FALSE(wrapping.ok());
}

TEST_CASE("a caller's error has the place of the last field", "[base][byte_reader]") {
  ByteReader reader(bytes_of(kSample));
  reader.read<std::uint32_t>("a");
  reader.read<std::uint8_t>("b");
  reader.fail(ErrorCode::kUnsupported, "b", "found 255, need 0");
  REQUIRE_FALSE(reader.ok());
  CHECK(reader.error().code == ErrorCode::kUnsupported);
  CHECK(reader.error().to_string() == "b (byte 4): found 255, need 0");
}

namespace {

Error some_error() {
  return Error{.code = ErrorCode::kIo, .field = "key", .message = "found 1, need 2"};
}

}  // namespace

TEST_CASE("an error's text leaves absent parts out", "[base][result]") {
  Error error{.code = ErrorCode::kMalformed, .field = "", .message = "found 1, need 2"};
  CHECK(error.to_string() == "found 1, need 2");
  error.field = "n_kv";
  CHECK(error.to_string() == "n_kv: found 1, need 2");
  error.offset = 16;
  CHECK(error.to_string() == "n_kv (byte 16): found 1, need 2");
  error.file = "a.gguf";
  error.hint = "download it again";
  CHECK(error.to_string() == "a.gguf: n_kv (byte 16): found 1, need 2; download it again");
  error.field = "";
  CHECK(error.to_string() == "a.gguf: (byte 16): found 1, need 2; download it again");
}

TEST_CASE("the file that a deeper layer named stays", "[base][result]") {
  CHECK(in_file(some_error(), "outer").file == "outer");
  CHECK(in_file(in_file(some_error(), "inner"), "outer").file == "inner");
}

TEST_CASE("checked sizes tell overflow from any result", "[base][checked_size]") {
  constexpr std::uint64_t kMax = UINT64_MAX;
  CHECK(*(CheckedSize(6) * 7 + 8).value() == 50);
  CHECK(*(CheckedSize(kMax) * 1 + 0).value() == kMax);
  CHECK(*(CheckedSize(kMax) * 0).value() == 0);
  CHECK_FALSE((CheckedSize(kMax) + 1).value().has_value());
  CHECK_FALSE((CheckedSize(std::uint64_t{1} << 32) * (std::uint64_t{1} << 32)).value().has_value());
  // 34-byte blocks whose byte size would wrap to 4.
  CHECK_FALSE((CheckedSize(4340410370284600384 / 32) * 34 * 4).value().has_value());
  CHECK_FALSE(((CheckedSize(kMax) + 1) * 0).value().has_value());  // once lost, always lost
  CHECK_FALSE(((CheckedSize(kMax) * 2) + 0).value().has_value());
  static_assert((CheckedSize(2) * 3).value() == 6);
}

TEST_CASE("aligning up never wraps unseen", "[base][checked_size]") {
  CHECK(*CheckedSize(0).align_up(32).value() == 0);
  CHECK(*CheckedSize(1).align_up(32).value() == 32);
  CHECK(*CheckedSize(32).align_up(32).value() == 32);
  CHECK(*CheckedSize(33).align_up(1).value() == 33);
  CHECK(*CheckedSize(UINT64_MAX - 31).align_up(32).value() == UINT64_MAX - 31);
  CHECK_FALSE(CheckedSize(UINT64_MAX - 30).align_up(32).value().has_value());
  CHECK_FALSE(CheckedSize(UINT64_MAX).align_up(4096).value().has_value());
}

}  // namespace llm
