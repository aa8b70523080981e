#include "quant/numerics/f64_functions.h"

#include "tests/quant/quant_testing.h"

namespace llm {
namespace {

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
