#include "quant/formats/half.h"

#include "quant/numerics/f64_functions.h"
#include "tests/quant/quant_testing.h"

namespace llm {
namespace {

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

static_assert(f16_to_f32(0x3C00) == 1.0f && f32_to_f16(1.0f) == 0x3C00);

TEST_CASE("every f16 widens to its value and comes back", "[quant][half]") {
  for (std::uint32_t h = 0; h < 0x10000; ++h) {
    const std::uint32_t exponent = h >> 10 & 31;
    const std::uint32_t mantissa = h & 0x3FF;
    const double sign = (h & 0x8000) != 0 ? -1.0 : 1.0;
    const float wide = f16_to_f32(static_cast<std::uint16_t>(h));
    CAPTURE(h);
    if (exponent == 31 && mantissa != 0) {
      REQUIRE(std::isnan(wide));
      REQUIRE(std::signbit(wide) == (sign < 0));
      REQUIRE(f32_to_f16(wide) == (h | 0x0200));  // quiet
      continue;
    }
    const double value = exponent == 31 ? sign * std::numeric_limits<double>::infinity()
                         : exponent == 0
                             ? sign * std::ldexp(mantissa, -24)
                             : sign * std::ldexp(1024 + mantissa, static_cast<int>(exponent) - 25);
    REQUIRE(static_cast<double>(wide) == value);
    REQUIRE(std::signbit(wide) == (sign < 0));
    REQUIRE(f32_to_f16(wide) == h);
  }
}

TEST_CASE("every E8M0 is half of its power of two", "[quant][half]") {
  for (int e = 0; e < 256; ++e) {
    CAPTURE(e);
    REQUIRE(e8m0_half_to_f32(static_cast<std::uint8_t>(e)) == std::ldexp(1.0F, e - 128));
  }
}

TEST_CASE("every UE4M3 is half of its value, in f16 as well", "[quant][half]") {
  for (int e = 0; e < 256; ++e) {
    CAPTURE(e);
    const int exponent = e / 8 % 16;
    const int mantissa = e % 8;
    const float value = e == 127 ? 0
                        : exponent == 0
                            ? std::ldexp(static_cast<float>(mantissa), -10)
                            : std::ldexp(static_cast<float>(8 + mantissa), exponent - 11);
    REQUIRE(ue4m3_half_to_f32(static_cast<std::uint8_t>(e)) == value);
    REQUIRE(f16_to_f32(f32_to_f16(value)) == value);
  }
}

TEST_CASE("f32 to f16 rounds to nearest, ties to even, at every boundary", "[quant][half]") {
  // Between each pair of neighbours: just below the middle, the middle, just above.
  for (std::uint32_t h = 0; h < 0x7C00; ++h) {
    const double low = static_cast<double>(f16_to_f32(static_cast<std::uint16_t>(h)));
    const double high =
        h == 0x7BFF ? 65536.0 : static_cast<double>(f16_to_f32(static_cast<std::uint16_t>(h + 1)));
    const float middle = static_cast<float>((low + high) / 2);
    CAPTURE(h);
    REQUIRE(f32_to_f16(from_bits(bits_of(middle) - 1)) == h);
    REQUIRE(f32_to_f16(middle) == (h % 2 == 0 ? h : h + 1));
    REQUIRE(f32_to_f16(from_bits(bits_of(middle) + 1)) == h + 1);
    REQUIRE(f32_to_f16(-middle) == (0x8000 | (h % 2 == 0 ? h : h + 1)));
  }
  REQUIRE(f32_to_f16(std::numeric_limits<float>::max()) == 0x7C00);
  REQUIRE(f32_to_f16(-std::numeric_limits<float>::infinity()) == 0xFC00);
  REQUIRE(f32_to_f16(from_bits(1)) == 0);
  REQUIRE(f32_to_f16(from_bits(0x80000001)) == 0x8000);
  REQUIRE(f32_to_f16(from_bits(0x7F800001)) == 0x7E00);
}

TEST_CASE("bf16 keeps the upper half and rounds to nearest even", "[quant][half]") {
  for (std::uint32_t b = 0; b < 0x10000; ++b) {
    const std::uint16_t half = static_cast<std::uint16_t>(b);
    CAPTURE(b);
    REQUIRE(bits_of(bf16_to_f32(half)) == b << 16);
    const bool nan = (b & 0x7FFF) > 0x7F80;
    REQUIRE(f32_to_bf16(bf16_to_f32(half)) == (nan ? (b | 0x40) : b));
    if ((b & 0x7FFF) >= 0x7F80) continue;
    REQUIRE(f32_to_bf16(from_bits(b << 16 | 0x7FFF)) == b);
    REQUIRE(f32_to_bf16(from_bits(b << 16 | 0x8000)) == (b % 2 == 0 ? b : b + 1));
    REQUIRE(f32_to_bf16(from_bits(b << 16 | 0x8001)) == b + 1);
  }
  REQUIRE(f32_to_bf16(from_bits(0x7F800001)) == 0x7FC0);  // a NaN never becomes infinity
}

/// A value as tests/golden/make_f64_functions.py writes it: the f64 nearest to it, and the rest.
struct Exact {
  double high;
  double low;
};

/// The records of a golden file, whose fields lie without padding in Record.
template <typename Record>
std::vector<Record> read_records(const std::string& name) {
  const auto bytes = testing::read_golden("f64_functions/" + name);
  REQUIRE(!bytes.empty());
  REQUIRE(bytes.size() % sizeof(Record) == 0);
  std::vector<Record> records(bytes.size() / sizeof(Record));
  std::memcpy(records.data(), bytes.data(), bytes.size());
  return records;
}

/// The error of `value` in units of the last place of the exact one.
double error_in_ulps(double value, const Exact& exact) {
  const double size = std::abs(exact.high);
  const double ulp = std::nextafter(size, std::numeric_limits<double>::infinity()) - size;
  return std::abs((value - exact.high) - exact.low) / ulp;
}

/// The largest error in ulps, and how many values are not the nearest.
struct Errors {
  double most = 0;
  std::size_t not_nearest = 0;
  void add(double value, const Exact& exact) {
    most = std::max(most, error_in_ulps(value, exact));
    not_nearest += value != exact.high ? 1 : 0;
  }
};

TEST_CASE("cos and sin: f64 within 0.52 ulps, f32 the nearest", "[quant][golden]") {
  struct Record {
    double x;
    Exact cos;
    Exact sin;
    float cos32;
    float sin32;
  };
  const auto records = read_records<Record>("cos_sin.bin");
  REQUIRE(records.size() > 3000);
  Errors errors;
  for (const Record& r : records) {
    CAPTURE(r.x);
    const contract::CosSin of = contract::cos_sin(r.x);
    const std::array rounded = {static_cast<float>(of.cos), static_cast<float>(of.sin)};
    errors.add(of.cos, r.cos);
    errors.add(of.sin, r.sin);
    REQUIRE(test::same_bits(rounded, std::array{r.cos32, r.sin32}));
    const contract::CosSin mirrored = contract::cos_sin(-r.x);
    REQUIRE(mirrored.cos == of.cos);
    REQUIRE(mirrored.sin == -of.sin);
  }
  CAPTURE(errors.most, errors.not_nearest);
  CHECK(errors.most <= 0.516);
  CHECK(errors.not_nearest <= 2 * records.size() / 100);
}

TEST_CASE("log: within half an ulp", "[quant][golden]") {
  struct Record {
    double x;
    Exact log;
  };
  Errors errors;
  for (const Record& r : read_records<Record>("log.bin")) {
    CAPTURE(r.x);
    errors.add(contract::log(r.x), r.log);
    REQUIRE(errors.not_nearest == 0);
  }
  CHECK(errors.most <= 0.5000001);
}

TEST_CASE("power: within half an ulp", "[quant][golden]") {
  struct Record {
    double x;
    double y;
    Exact power;
  };
  Errors errors;
  for (const Record& r : read_records<Record>("power.bin")) {
    CAPTURE(r.x, r.y);
    errors.add(contract::power(r.x, r.y), r.power);
    REQUIRE(errors.not_nearest == 0);
  }
  CHECK(errors.most <= 0.5000001);
}

TEST_CASE("outside of their domains the functions are NaN", "[quant]") {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();
  for (const double x :
       {kInfinite, -kInfinite, kNotANumber, std::nextafter(0x1p+40, kInfinite), -1e300}) {
    CAPTURE(x);
    CHECK(std::isnan(contract::cos_sin(x).cos));
    CHECK(std::isnan(contract::cos_sin(x).sin));
  }
  for (const double x : {kInfinite, -kInfinite, kNotANumber, 0.0, -0.0, -1.0}) {
    CAPTURE(x);
    CHECK(std::isnan(contract::log(x)));
    CHECK(std::isnan(contract::power(x, 0.5)));
  }
  for (const double y : {kInfinite, kNotANumber, 1011.0, -1011.0}) {
    CAPTURE(y);
    CHECK(std::isnan(contract::power(2, y)));
  }
}

}  // namespace

}  // namespace llm
