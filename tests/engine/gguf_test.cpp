// The parser's views and getters, and the writer against the parser.

#include "engine/gguf/gguf_file.h"
#include "engine/gguf/gguf_writer.h"
#include "tests/support/test.h"
#include "tests/support/tiny_gguf.h"

namespace llm::test {
namespace {

std::vector<std::byte> write_all(const GgufWriter& writer,
                                 const std::vector<std::vector<std::byte>>& data) {
  std::vector<std::byte> out;
  GgufStream stream(writer, sink_to(out));
  REQUIRE(stream.begin().ok());
  for (const auto& tensor : data) {
    // In two pieces, as a converter of large tensors would.
    const std::size_t half = tensor.size() / 2;
    REQUIRE(stream.write(std::span(tensor).first(half)).ok());
    REQUIRE(stream.write(std::span(tensor).subspan(half)).ok());
  }
  REQUIRE(stream.finish().ok());
  return out;
}

std::vector<std::byte> filled(std::size_t size, int seed) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + seed);
  return bytes;
}

TEST_CASE("every value type survives writing and parsing", "[gguf]") {
  GgufWriter writer;
  writer.add_number<std::uint8_t>("u8", 200);
  writer.add_number<std::int8_t>("i8", -5);
  writer.add_number<std::uint16_t>("u16", 60000);
  writer.add_number<std::int16_t>("i16", -6);
  writer.add_number<std::uint32_t>("u32", 4000000000U);
  writer.add_number<std::int32_t>("i32", -7);
  writer.add_number("f32", 1.5F);
  writer.add_number("bool", true);
  writer.add_string("string", "h\u00E9llo");
  writer.add_number<std::uint64_t>("u64", UINT64_MAX);
  writer.add_number<std::int64_t>("i64", INT64_MIN);
  writer.add_number("f64", 0.25);
  const std::vector<std::string> words = {"", "one", "two"};
  writer.add_strings("strings", words);
  const std::array<float, 3> floats = {1.0F, -2.0F, 0.5F};
  writer.add_numbers<float>("floats", floats);
  const std::array<std::int32_t, 2> ints = {-1, 9};
  writer.add_numbers<std::int32_t>("ints", ints);
  const auto bytes = write_all(writer, {});
  const GgufFile file = require_ok(GgufFile::parse(bytes));

  CHECK(file.version() == 3);
  CHECK(file.entries().size() == 15);
  CHECK(file.get_unsigned("u8").value() == 200);
  CHECK(file.get_unsigned("u16").value() == 60000);
  CHECK(file.get_unsigned("u32").value() == 4000000000U);
  CHECK(file.get_unsigned("u64").value() == UINT64_MAX);
  CHECK(load_unaligned<std::int8_t>(file.find("i8")->bytes) == -5);
  CHECK(load_unaligned<std::int16_t>(file.find("i16")->bytes) == -6);
  CHECK(load_unaligned<std::int32_t>(file.find("i32")->bytes) == -7);
  CHECK(load_unaligned<std::int64_t>(file.find("i64")->bytes) == INT64_MIN);
  CHECK(file.get_float("f32").value() == 1.5F);
  CHECK(file.get_float("f64").value() == 0.25F);
  CHECK(file.get_bool_or("bool", false).value());
  CHECK(file.get_string("string").value() == "h\u00E9llo");
  const GgufStrings strings = file.get_strings("strings").value();
  CHECK(std::vector<std::string>(strings.begin(), strings.end()) == words);
  CHECK(file.get_floats("floats").value()[1] == -2.0F);
  CHECK(file.get_ints("ints").value()[0] == -1);
}

TEST_CASE("typed getters name key, found and expected", "[gguf]") {
  GgufWriter writer;
  writer.add_string("text", "x");
  writer.add_number<std::int32_t>("signed", -1);
  const auto bytes = write_all(writer, {});
  const GgufFile file = require_ok(GgufFile::parse(bytes));
  CHECK(file.get_unsigned("text").error().to_string() ==
        "text (byte 48): found STRING, need UINT32");
  CHECK(file.get_unsigned("signed").error().message == "found INT32, need UINT32");
  CHECK(file.get_unsigned("none").error().to_string() == "none: key is absent, need UINT32");
  CHECK(file.get_unsigned_or("none", 7).value() == 7);
  CHECK_FALSE(file.get_unsigned_or("text", 7).ok());
  CHECK(file.get_floats("text").error().message == "found STRING, need ARRAY of FLOAT32");
  CHECK_FALSE(file.get_bool_or("text", true).ok());
}

TEST_CASE("tensors are written aligned and found again", "[gguf]") {
  const auto alignment = GENERATE(32U, 64U, 4096U);
  GgufWriter writer(alignment);
  const std::array<std::uint64_t, 2> matrix = {64, 3};
  const std::array<std::uint64_t, 1> vector = {5};
  writer.add_tensor("matrix", WeightType::kQ8_0, matrix);
  writer.add_tensor("vector", WeightType::kF32, vector);
  const auto first = filled(64 / 32 * 34 * 3, 1);
  const auto second = filled(20, 2);
  const auto bytes = write_all(writer, {first, second});
  const auto parsed = require_ok(GgufFile::parse(bytes));
  CHECK(parsed.alignment() == alignment);
  CHECK(bytes.size() % alignment == 0);
  CHECK(parsed.trailing_bytes() == 0);
  CHECK(parsed.data_offset() % alignment == 0);
  const GgufTensor* tensor = parsed.find_tensor("matrix");
  REQUIRE(tensor != nullptr);
  CHECK(tensor->n_elements == 192);
  CHECK(tensor->n_bytes == first.size());
  const auto data = parsed.tensor_data(*tensor);
  CHECK(std::equal(data.begin(), data.end(), first.begin(), first.end()));
  const GgufTensor* other = parsed.find_tensor("vector");
  REQUIRE(other != nullptr);
  CHECK(other->offset % alignment == 0);
  const auto other_data = parsed.tensor_data(*other);
  CHECK(std::equal(other_data.begin(), other_data.end(), second.begin(), second.end()));
  CHECK(parsed.find_tensor("matri") == nullptr);
}

TEST_CASE("a file copied entry by entry has the same bytes", "[gguf]") {
  const auto original = TinyGguf::llama().bytes();
  const auto parsed = require_ok(GgufFile::parse(original));
  GgufWriter writer;
  for (const GgufEntry& entry : parsed.entries()) writer.add_entry(entry);
  std::vector<std::vector<std::byte>> data;
  for (const GgufTensor& tensor : parsed.tensors()) {
    writer.add_tensor(tensor.name, tensor.type, std::span(tensor.dims).first(tensor.n_dims));
    const auto view = parsed.tensor_data(tensor);
    data.emplace_back(view.begin(), view.end());
  }
  CHECK(write_all(writer, data) == original);
}

TEST_CASE("the writer refuses what the parser would", "[gguf]") {
  const std::array<std::uint64_t, 1> row = {32};
  const std::array<std::uint64_t, 1> odd = {33};
  const std::array<std::uint64_t, 2> empty = {32, 0};
  const auto refused = [](std::string_view words, const auto& fill) {
    GgufWriter writer;
    fill(writer);
    must_fail(writer.header(), {words});
  };
  refused("k: found a duplicate key", [](auto& w) {
    w.add_string("k", "1");
    w.add_string("k", "2");
  });
  refused("bad key", [](auto& w) { w.add_string("", "1"); });
  refused("t: found a duplicate tensor name", [&](auto& w) {
    w.add_tensor("t", WeightType::kF32, row);
    w.add_tensor("t", WeightType::kF32, row);
  });
  refused("bad tensor name",
          [&](auto& w) { w.add_tensor(std::string(64, 't'), WeightType::kF32, row); });
  refused("block size 32", [&](auto& w) { w.add_tensor("t", WeightType::kQ4_0, odd); });
  refused("empty", [&](auto& w) { w.add_tensor("t", WeightType::kF32, empty); });
}

TEST_CASE("an error of the sink ends the stream", "[gguf]") {
  GgufWriter writer;
  writer.add_string("k", "v");
  GgufStream stream(writer, [](std::span<const std::byte>) -> Status {
    return Error{.code = ErrorCode::kIo, .field = {}, .message = "disk full"};
  });
  CHECK(must_fail(stream.begin()).message == "disk full");
}

}  // namespace
}  // namespace llm::test
