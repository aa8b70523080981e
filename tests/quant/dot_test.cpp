#include "quant/formats/reference/dot.h"

#include "quant/formats/activations.h"
#include "quant/formats/block_visit.h"
#include "quant/formats/dequantize.h"
#include "quant/formats/reference/matmul.h"
#include "tests/quant/quant_testing.h"

namespace llm {
namespace {

constexpr std::size_t kColumns = 1024;

std::vector<std::byte> quantize(WeightType type, const std::vector<float>& x) {
  const ActivationFormat format = activation_format(type);
  std::vector<std::byte> out(activation_row_bytes(format, x.size()));
  quantize_activations(format, x, out);
  return out;
}

/// The activations as the quantized product sees them.
std::vector<float> seen_by_product(WeightType type, const std::vector<float>& x) {
  const auto bytes = quantize(type, x);
  std::vector<float> seen;
  visit_activation_block(activation_format(type), [&]<typename Block>() {
    for (std::size_t b = 0; b < x.size() / Block::kWeights; ++b) {
      const auto block = load_block<Block>(bytes, b);
      if constexpr (requires { block.value; }) {
        seen.push_back(block.value);
      } else {
        for (const std::int8_t code : block.qs) seen.push_back(block.d * static_cast<float>(code));
      }
    }
  });
  return seen;
}

TEST_CASE("a dot product equals the f64 sum over dequantized values", "[quant][dot]") {
  const auto type = GENERATE(from_range(testing::all_weight_types()));
  const auto seed = GENERATE(1u, 2u, 3u);
  CAPTURE(block_traits(type).name, seed);
  const auto w = testing::random_blocks(type, kColumns, seed);
  const auto x = testing::random_normals(kColumns, 1.0f, seed + 100);
  const auto seen = seen_by_product(type, x);
  std::vector<float> weights(kColumns);
  contract::dequantize_row(type, w, weights);

  double exact = 0;
  double magnitude = 0;  // of everything that is added, mins apart from codes
  double exact_f32 = 0;
  for (std::size_t k = 0; k < kColumns; ++k) {
    exact += static_cast<double>(weights[k]) * static_cast<double>(seen[k]);
    exact_f32 += static_cast<double>(weights[k]) * static_cast<double>(x[k]);
    magnitude += std::abs(static_cast<double>(weights[k])) * 2 + 1e-3;
  }
  // At most kColumns roundings of a partial sum, and the roundings of dequantization itself.
  const double bound = magnitude * 4 * kColumns * 0x1p-24;
  const float actual = reference::dot_row(type, w, quantize(type, x));
  REQUIRE(std::abs(static_cast<double>(actual) - exact) <= bound / 32);
  const float actual_f32 = reference::dot_row_f32(type, w, x);
  REQUIRE(std::abs(static_cast<double>(actual_f32) - exact_f32) <= bound / 32);
}

/// One block with every code and sub-block scale at the extreme that makes isum largest in
/// magnitude, d = 1 and no min; and that isum for activations of 127.
struct Extreme {
  WeightType type;
  std::vector<std::byte> block;
  double isum;
};

template <typename Block>
Extreme extreme_of(const Block& block, double isum) {
  const auto bytes = std::as_bytes(std::span(&block, 1));
  return {Block::kType, {bytes.begin(), bytes.end()}, isum};
}

/// Of the types with a codebook: the entry with the largest sum, all signs positive, scales of 31
/// or 15, and d = 1.
void add_codebook_extremes(std::vector<Extreme>& all) {
  constexpr std::uint16_t kFour = 0x4400;
  constexpr std::uint16_t kEight = 0x4800;
  const auto fill = [](auto& field, int value) { std::memset(field, value, sizeof(field)); };
  BlockIQ3_S iq3_s{};
  iq3_s.d = 0x3C00;
  fill(iq3_s.qs, 338 % 256);
  fill(iq3_s.qh, 0xFF);
  fill(iq3_s.scales, 0xFF);
  all.push_back(extreme_of(iq3_s, 64.0 * 42 * 127 * 31));
  BlockIQ3_XXS iq3_xxs{};
  iq3_xxs.d = kFour;
  fill(iq3_xxs.qs, 135);
  for (std::size_t s = 0; s < 8; ++s) iq3_xxs.scales[4 * s + 3] = 0xF0;
  all.push_back(extreme_of(iq3_xxs, 64.0 * 162 * 127 * 31));
  BlockIQ2_S iq2_s{};
  iq2_s.d = kEight;
  fill(iq2_s.qs, 0xFF);
  fill(iq2_s.qh, 0xFF);
  fill(iq2_s.scales, 0xFF);
  all.push_back(extreme_of(iq2_s, 32.0 * 344 * 127 * 31));
  BlockIQ2_XS iq2_xs{};
  iq2_xs.d = kEight;
  for (std::size_t i = 0; i < 64; ++i) iq2_xs.qs[i] = i % 2 == 0 ? 0xFF : 0x01;
  fill(iq2_xs.scales, 0xFF);
  all.push_back(extreme_of(iq2_xs, 32.0 * 344 * 127 * 31));
  BlockIQ2_XXS iq2_xxs{};
  iq2_xxs.d = kEight;
  for (std::size_t i = 0; i < 64; ++i) iq2_xxs.qs[i] = i % 8 < 4 ? 57 : i % 8 == 7 ? 0xF0 : 0;
  all.push_back(extreme_of(iq2_xxs, 32.0 * 203 * 127 * 31));
  BlockIQ1_S iq1_s{};
  iq1_s.d = kEight;
  fill(iq1_s.qs, 0xFF);
  for (std::size_t i = 0; i < 16; ++i) iq1_s.qh[i] = i % 2 == 0 ? 0xFF : 0x7F;
  all.push_back(extreme_of(iq1_s, 256.0 * 9 * 127 * 15));
  BlockIQ1_M iq1_m{};
  fill(iq1_m.qs, 0xFF);
  fill(iq1_m.qh, 0x77);
  fill(iq1_m.scales, 0xFF);
  contract::set_iq1_m_scale_bits(iq1_m, kEight);
  all.push_back(extreme_of(iq1_m, 256.0 * 9 * 127 * 15));
}

std::vector<Extreme> extremes() {
  const auto filled = [](WeightType type, int fill, double isum) {
    Extreme extreme{type, std::vector<std::byte>(block_traits(type).block_bytes, std::byte(fill)),
                    isum};
    const auto offsets = testing::f16_offsets(type);
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      testing::store_f16(extreme.block, offsets[i], i == 0 ? 0x3C00 : 0);
    }
    return extreme;
  };
  Extreme q6 = filled(WeightType::kQ6_K, 0x00, 256.0 * 32 * 127 * 128);
  std::fill_n(q6.block.begin() + 192, 16, std::byte(0x80));  // scales of -128
  Extreme mx = filled(WeightType::kMXFP4, 0xFF, -32.0 * 12 * 127);
  mx.block[0] = std::byte{128};  // 2^0
  Extreme nv = filled(WeightType::kNVFP4, 0xFF, -64.0 * 12 * 127);
  std::fill_n(nv.block.begin(), 4, std::byte{0x40});  // 1
  Extreme q8 = filled(WeightType::kQ8_K, 0x80, -256.0 * 128 * 127);
  const float one = 1.0f;
  std::memcpy(q8.block.data(), &one, sizeof(one));
  std::vector<Extreme> all = {
      filled(WeightType::kQ4_0, 0x00, -32.0 * 8 * 127),
      filled(WeightType::kQ4_1, 0xFF, 32.0 * 15 * 127),
      filled(WeightType::kQ5_0, 0x00, -32.0 * 16 * 127),
      filled(WeightType::kQ5_1, 0xFF, 32.0 * 31 * 127),
      filled(WeightType::kQ8_0, 0x80, -32.0 * 128 * 127),
      filled(WeightType::kQ2_K, 0xFF, 256.0 * 3 * 127 * 15),
      filled(WeightType::kQ3_K, 0x00, 256.0 * 4 * 127 * 32),
      filled(WeightType::kQ4_K, 0xFF, 256.0 * 15 * 127 * 63),
      filled(WeightType::kQ5_K, 0xFF, 256.0 * 31 * 127 * 63),
      filled(WeightType::kQ1_0, 0x00, -128.0 * 127),
      filled(WeightType::kQ2_0, 0xFF, 64.0 * 2 * 127),
      filled(WeightType::kTQ1_0, 0xFF, 256.0 * 127),
      filled(WeightType::kTQ2_0, 0xFF, 256.0 * 2 * 127),
      filled(WeightType::kIQ4_NL, 0x00, -32.0 * 127 * 127),
      filled(WeightType::kIQ4_XS, 0x00, 256.0 * 127 * 127 * 32),  // scales of -32
      q6,
      mx,
      nv,
      q8};
  add_codebook_extremes(all);
  return all;
}

TEST_CASE("integer sums are exact at the extreme codes", "[quant][dot]") {
  for (const Extreme& extreme : extremes()) {
    CAPTURE(block_traits(extreme.type).name);
    const std::vector<float> x(block_traits(extreme.type).block_weights, 127.0f);
    const auto activations = quantize(extreme.type, x);  // d = 1, codes 127
    const float actual = reference::dot_row(extreme.type, extreme.block, activations);
    REQUIRE(actual == static_cast<float>(extreme.isum));
    REQUIRE(std::abs(extreme.isum) < 0x1p27);
  }
}

TEST_CASE("mins subtract, offsets add", "[quant][dot]") {
  const auto type = GENERATE(WeightType::kQ4_1, WeightType::kQ5_1, WeightType::kQ2_K,
                             WeightType::kQ4_K, WeightType::kQ5_K);
  CAPTURE(block_traits(type).name);
  const std::size_t n = block_traits(type).block_weights;
  std::vector<std::byte> block(block_traits(type).block_bytes, std::byte{0xFF});
  const auto offsets = testing::f16_offsets(type);
  testing::store_f16(block, offsets[0], 0);       // d = 0: codes do not count
  testing::store_f16(block, offsets[1], 0x3C00);  // 1
  const auto activations = quantize(type, std::vector<float>(n, 127.0f));
  const double sum = 127.0 * static_cast<double>(n);
  const double expected = n == 32 ? sum : type == WeightType::kQ2_K ? -15 * sum : -63 * sum;
  REQUIRE(reference::dot_row(type, block, activations) == static_cast<float>(expected));
}

TEST_CASE("a NaN or Inf activation always reaches the output", "[quant][dot]") {
  const auto type = GENERATE(from_range(testing::all_weight_types()));
  const auto bad =
      GENERATE(std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN());
  const auto zero_weights = GENERATE(false, true);
  CAPTURE(block_traits(type).name, bad, zero_weights);
  auto w = testing::random_blocks(type, 512, 9);
  if (zero_weights) std::fill(w.begin(), w.end(), std::byte{0});
  auto x = testing::random_normals(512, 1.0f, 10);
  x[300] = bad;
  REQUIRE(!std::isfinite(reference::dot_row(type, w, quantize(type, x))));
}

TEST_CASE("float types add in ascending k with one rounding each", "[quant][dot]") {
  // 2^24 + 1 is a tie that rounds to 2^24, so the order of additions shows.
  const std::vector<float> w = {0x1p24f, 1.0f, 1.0f, -0x1p24f};
  const std::vector<float> x(4, 1.0f);
  const auto w_bytes = std::as_bytes(std::span(w));
  REQUIRE(reference::dot_row(WeightType::kF32, w_bytes, std::as_bytes(std::span(x))) == 0.0f);
  REQUIRE(reference::dot_row_f32(WeightType::kF32, w_bytes, x) == 0.0f);
  // The product is not rounded by itself: (1 + 2^-23)(1 - 2^-23) - 1 = -2^-46.
  const std::vector<float> a = {-1.0f, 1.0f + 0x1p-23f};
  const std::vector<float> b = {1.0f, 1.0f - 0x1p-23f};
  const auto a_bytes = std::as_bytes(std::span(a));
  REQUIRE(reference::dot_row_f32(WeightType::kF32, a_bytes, b) == -0x1p-46f);
  REQUIRE(reference::dot_row(WeightType::kF32, a_bytes, std::as_bytes(std::span(b))) == -0x1p-46f);
}

TEST_CASE("matmul is one dot product per output", "[quant][matmul]") {
  const auto type = GENERATE(from_range(testing::all_weight_types()));
  constexpr std::size_t kRows = 5;
  constexpr std::size_t kTokens = 3;
  const auto bytes = testing::random_blocks(type, kRows * 512, 21);
  const auto x = testing::random_normals(kTokens * 512, 1.0f, 22);
  const reference::MatrixBytes w{type, kRows, 512, bytes};
  std::vector<float> y(kTokens * kRows);
  std::vector<float> y_f32(kTokens * kRows);
  reference::matmul(w, x, y);
  reference::matmul_f32(w, x, y_f32);
  const std::size_t stride = row_bytes(type, 512);
  for (std::size_t t = 0; t < kTokens; ++t) {
    const std::vector<float> row(x.begin() + static_cast<std::ptrdiff_t>(512 * t),
                                 x.begin() + static_cast<std::ptrdiff_t>(512 * (t + 1)));
    for (std::size_t r = 0; r < kRows; ++r) {
      const auto w_row = std::span(bytes).subspan(r * stride, stride);
      REQUIRE(y[t * kRows + r] == reference::dot_row(type, w_row, quantize(type, row)));
      REQUIRE(y_f32[t * kRows + r] == reference::dot_row_f32(type, w_row, row));
    }
  }
}

}  // namespace
}  // namespace llm
