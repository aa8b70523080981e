#include "validate/reference/fault_localization/locate_signature.h"

#include "tests/support/test.h"
#include "validate/reference/diff/layer_diff.h"

namespace llm {
namespace {

constexpr std::size_t kRows = 5;
constexpr std::size_t kFeatures = 128;

/// Values that depend on row and feature, no two alike.
TapMatrix right(std::size_t features = kFeatures) {
  TapMatrix m{kRows, features, {}};
  for (std::size_t i = 0; i < kRows * features; ++i)
    m.values.push_back(std::sin(0.37F * static_cast<float>(i)) + 1e-3F * static_cast<float>(i));
  return m;
}

/// `change` gets row, feature and the right value.
template <typename Change>
TapMatrix wrong(const Change& change) {
  TapMatrix m = right();
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t f = 0; f < kFeatures; ++f) {
      float& value = m.values[r * kFeatures + f];
      value = change(r, f, value);
    }
  }
  return m;
}

/// What `change` makes of right values looks like.
template <typename Change>
Signature signature_of(const Change& change) {
  return find_signature(wrong(change), right());
}

}  // namespace

TEST_CASE("equal matrices have no signature", "[locate]") {
  CHECK(find_signature(right(), right()).kind == SignatureKind::kNone);
}

TEST_CASE("NaN and zeros are told apart from numbers", "[locate]") {
  TapMatrix m = right();
  m.values[7] = std::numeric_limits<float>::quiet_NaN();
  CHECK(find_signature(m, right()).kind == SignatureKind::kNonFinite);
  CHECK(signature_of([](auto, auto, float) { return 0.0F; }).kind == SignatureKind::kZero);
}

TEST_CASE("a factor without residual is a scale", "[locate]") {
  const auto found = signature_of([](auto, auto, float v) { return 5.65685F * v; });
  CHECK(found.kind == SignatureKind::kScale);
  CHECK_THAT(found.text, Contains("times 5.65685"));
  const auto noisy = wrong([](auto, std::size_t f, float v) { return f % 2 == 0 ? 2 * v : 3 * v; });
  CHECK(scale_signature(noisy, right(), 1e-9).kind == SignatureKind::kNone);
}

TEST_CASE("rows of a neighbouring position are a shift", "[locate]") {
  const auto shift = GENERATE(1, -1);
  const TapMatrix expected = right();
  const auto m = wrong([&](std::size_t r, std::size_t f, float) {
    const auto from = static_cast<std::size_t>(
        std::clamp<int>(static_cast<int>(r) + shift, 0, static_cast<int>(kRows) - 1));
    return expected.values[from * kFeatures + f];
  });
  const auto found = find_signature(m, expected);
  CHECK(found.kind == SignatureKind::kPositionShift);
  CHECK_THAT(found.text, Contains(shift > 0 ? "t + 1" : "t - 1"));
}

TEST_CASE("halves taken for pairs are a RoPE permutation, either way", "[locate]") {
  const SignatureOptions options{.head_dim = 32, .rope_dim = 32};
  TapMatrix pairs = right();
  half_to_interleaved(pairs, 32, 32);
  CHECK(find_signature(right(), pairs, options).kind == SignatureKind::kRopePermutation);
  CHECK(find_signature(pairs, right(), options).kind == SignatureKind::kRopePermutation);
  // Without heads to speak of it is a permutation like any other.
  const auto plain = find_signature(pairs, right());
  CHECK(plain.kind == SignatureKind::kPermutation);
  CHECK_THAT(plain.text, Contains("within runs of 32"));
}

TEST_CASE("values in another order within runs are a permutation", "[locate]") {
  const TapMatrix expected = right();
  const auto m = wrong([&](std::size_t r, std::size_t f, float) {
    return expected.values[r * kFeatures + (f ^ 8U)];
  });
  const auto found = find_signature(m, expected);
  CHECK(found.kind == SignatureKind::kPermutation);
  CHECK_THAT(found.text, Contains("within runs of 16"));
  const auto other = wrong([](std::size_t, std::size_t f, float v) { return f == 3 ? v + 1 : v; });
  CHECK(permutation_signature(other, expected, 1e-9).kind == SignatureKind::kNone);
}

TEST_CASE("a lost fifth bit is sixteen steps of the codes", "[locate]") {
  const auto code = [](std::size_t r, std::size_t f) { return (7 * r + 5 * f) % 32; };
  TapMatrix expected = right();
  TapMatrix actual = right();
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t f = 0; f < kFeatures; ++f) {
      const float scale = 0.01F * static_cast<float>(1 + f / 32);
      const std::size_t q = code(r, f);
      expected.values[r * kFeatures + f] = scale * static_cast<float>(q) - 0.1F;
      actual.values[r * kFeatures + f] = scale * static_cast<float>(f < 64 ? q : q & 15) - 0.1F;
    }
  }
  const auto found = find_signature(actual, expected);
  CHECK(found.kind == SignatureKind::kHighBit);
  CHECK_THAT(found.text, Contains("off by 16 steps"));
  const auto other = wrong([](auto, std::size_t f, float v) { return f % 5 == 0 ? 1.3F * v : v; });
  CHECK(high_bit_signature(other, right()).kind == SignatureKind::kNone);
}

TEST_CASE("where the wrong elements are", "[locate]") {
  const auto tail = signature_of([](auto, std::size_t f, float v) { return f >= 112 ? v + 1 : v; });
  CHECK(tail.kind == SignatureKind::kTail);
  CHECK_THAT(tail.text, Contains("from feature 112 of"));
  const auto period =
      signature_of([](auto, std::size_t f, float v) { return f % 32 >= 16 ? 2 * v + 1 : v; });
  CHECK(period.kind == SignatureKind::kPeriod);
  CHECK_THAT(period.text, Contains("repeat every 32"));
  const auto row = signature_of(
      [](std::size_t r, std::size_t f, float v) { return r == 3 && f < 90 ? 1 - v : v; });
  CHECK(row.kind == SignatureKind::kRows);
  CHECK_THAT(row.text, Contains("in 1 of 5 tokens: 3"));
  const auto feature =
      signature_of([](auto, std::size_t f, float v) { return f == 17 ? v + 0.5F : v; });
  CHECK(feature.kind == SignatureKind::kFeatures);
  CHECK_THAT(feature.text, Contains("only feature 17 of 128"));
  const auto all = signature_of([](auto, auto, float v) { return v * v + 2; });
  CHECK(all.kind == SignatureKind::kNone);
}

}  // namespace llm
