#include "validate/reference/npz/npy.h"

#include "tests/support/test.h"

namespace llm::test {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

/// A header of the given version whose length field is true unless `length` says otherwise.
std::string header(const std::string& text, int major = 1, std::int64_t length = -1) {
  std::string out = "\x93NUMPY";
  out += static_cast<char>(major);
  out += '\0';
  const auto n =
      static_cast<std::uint32_t>(length < 0 ? static_cast<std::int64_t>(text.size()) : length);
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i) out += static_cast<char>(n >> (8 * i));
  return out + text;
}

Result<NpyHeader> parse(const std::string& all) { return parse_npy_header(bytes_of(all), "m.npy"); }

std::string dictionary(const std::string& shape, const std::string& descr = "'<f4'",
                       const std::string& fortran = "False") {
  return "{'descr': " + descr + ", 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
}

struct BadHeader {
  std::string bytes;
  std::string words;
  ErrorCode code = ErrorCode::kMalformed;
};

}  // namespace

TEST_CASE("an NPY header is parsed, whatever the order of its keys", "[npy]") {
  const auto parsed =
      require_ok(parse(header("{\"shape\":(2, 3), 'fortran_order':True,'descr':'>f8'}")));
  CHECK(parsed.type == NpyType::kF64);
  CHECK(parsed.big_endian);
  CHECK(parsed.fortran_order);
  CHECK(parsed.shape == std::vector<std::uint64_t>{2, 3});
  CHECK(parsed.data_bytes == 48);
}

TEST_CASE("scalars, vectors and empty arrays have their sizes", "[npy]") {
  CHECK(parse(header(dictionary("()")))->data_bytes == 4);
  CHECK(parse(header(dictionary("(5,)")))->data_bytes == 20);
  CHECK(parse(header(dictionary("(5, 0, 7)")))->data_bytes == 0);
  CHECK(parse(header(dictionary("(3,)", "'|u1'"), 2))->data_bytes == 3);
  CHECK(parse(header(dictionary("(3,)", "'<f2'"), 3))->data_bytes == 6);
}

TEST_CASE("a bad NPY header is rejected with its field", "[npy][bad_input]") {
  const auto bad = GENERATE(values<BadHeader>({
      {"\x93NUMPX" + header(dictionary("(3,)")).substr(6), "magic"},
      {header(dictionary("(3,)"), 4), "version: found 4.0"},
      {header(dictionary("(3,)"), 0), "version: found 0.0"},
      {header(dictionary("(3,)"), 2, 0xFFFFFFFF), "header_len: found 4294967295"},
      {header(dictionary("(3,)"), 1, 0xFFFF), "header_len: found 65535"},
      {header(dictionary("(3,)"), 1, 500), "cut off"},
      {header("__import__('os').system('true')"), "plain dictionary"},
      {header(dictionary("__import__('os').abort()")), "shape"},
      {header(dictionary("(3,)") + "; exit()"), "plain dictionary"},
      {header(dictionary("(-1,)")), "shape"},
      {header(dictionary("(3.5,)")), "shape"},
      {header(dictionary("(3 4)")), "shape"},
      {header(dictionary("(3,")), "shape"},
      {header(dictionary("(99999999999999999999,)")), "shape"},
      {header(dictionary("(4294967296, 4294967296)")), "overflows"},
      {header(dictionary("(4611686018427387904,)")), "overflows"},
      {header(dictionary("(" + std::string(99, '1').replace(1, 98, std::string(98, ',')) + ")")),
       "shape"},
      {header(dictionary(fmt::format("({})", fmt::join(std::vector<int>(33, 1), ",")))),
       "more than 32 dimensions"},
      {header(dictionary("(3,)", "'|O'")), "pickle is never loaded", ErrorCode::kUnsupported},
      {header(dictionary("(3,)", "[('a', '<f4')]")), "structured", ErrorCode::kUnsupported},
      {header(dictionary("(3,)", "'<c8'")), "'<c8'", ErrorCode::kUnsupported},
      {header(dictionary("(3,)", "'<i2'")), "'<i2'", ErrorCode::kUnsupported},
      {header(dictionary("(3,)", "''")), "descr", ErrorCode::kUnsupported},
      {header(dictionary("(3,)", "4")), "descr"},
      {header(dictionary("(3,)", "'<f4'", "1")), "fortran_order"},
      {header("{'descr': '<f4', 'shape': (3,)}"), "need the keys"},
      {header("{'descr': '<f4', 'descr': '<f4', 'shape': (3,)}"), "duplicate"},
      {header("{'descr': '<f4', 'evil': 1, 'shape': (3,)}"), "'evil'"},
      {header(""), "plain dictionary"},
  }));
  CAPTURE(bad.words);
  must_fail(parse(bad.bytes), bad.code, {bad.words, "m.npy"});
}

TEST_CASE("every truncation of an NPY header is refused", "[npy][bad_input]") {
  const std::string whole = header(dictionary("(3, 4)"));
  for (std::size_t n = 0; n < whole.size(); ++n) {
    CAPTURE(n);
    CHECK(!parse(whole.substr(0, n)).ok());
  }
  CHECK(parse(whole).ok());
}

TEST_CASE("written headers parse back and align the data", "[npy]") {
  const auto shape = GENERATE(values<std::vector<std::uint64_t>>({{}, {7}, {3, 4}, {0, 9, 2}}));
  for (const auto type :
       {NpyType::kF16, NpyType::kF32, NpyType::kF64, NpyType::kI32, NpyType::kI64, NpyType::kU8}) {
    const std::string text = encode_npy_header(type, shape);
    CHECK(text.size() % 64 == 0);
    const auto parsed = require_ok(parse(text));
    CHECK(parsed.type == type);
    CHECK(parsed.shape == shape);
    CHECK(!parsed.fortran_order);
  }
}

TEST_CASE("half precision widens exactly", "[npy]") {
  const std::uint16_t bits[] = {0x0000, 0x8000, 0x0001, 0x03FF, 0x0400, 0x3C00,
                                0xC000, 0x7BFF, 0x7C00, 0xFC00, 0x7E00};
  NpyArray array{NpyType::kF16, {std::size(bits)}, {}};
  const auto bytes = std::as_bytes(std::span(bits));
  array.data.assign(bytes.begin(), bytes.end());
  const auto values = require_ok(array.as_f32());
  const float expected[] = {0.0F, -0.0F, 0x1p-24F, 1023 * 0x1p-24F, 0x1p-14F,
                            1.0F, -2.0F, 65504.0F, INFINITY,        -INFINITY};
  CHECK(std::memcmp(values.data(), expected, sizeof(expected)) == 0);
  CHECK(std::isnan(values[10]));
  CHECK(!array.as_i64().ok());
}

}  // namespace llm::test
