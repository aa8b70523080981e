#include "quant/formats/activations.h"

#include "tests/quant/quant_testing.h"

namespace llm {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
/// Below this 127 / amax overflows.
constexpr float kLeastAmax = 3.7321e-37f;

template <typename Block>
Block quantized(const std::vector<float>& x) {
  Block block;
  std::memset(&block, 0xAB, sizeof(block));
  quantize_block(std::span<const float, Block::kWeights>(x.data(), Block::kWeights), block);
  return block;
}

template <typename Block>
int code_sum(const Block& block) {
  int sum = 0;
  for (const int q : block.qs) sum += q;
  return sum;
}

TEST_CASE("codes are the nearest multiples of d, ties to even", "[quant][activations]") {
  std::vector<float> x(32, 0.0f);
  x[0] = 127.0f;  // d = 1
  const float ties[] = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f, -126.5f};
  const int expected[] = {0, 2, 2, 0, -2, -2, 126, -126};
  std::copy(std::begin(ties), std::end(ties), x.begin() + 1);
  const auto block = quantized<BlockQ8_32>(x);
  REQUIRE(block.d == 1.0f);
  REQUIRE(block.qs[0] == 127);
  for (std::size_t i = 0; i < 8; ++i) REQUIRE(block.qs[i + 1] == expected[i]);
}

TEST_CASE("codes stay in [-127, 127] and sums are exact at every scale", "[quant][activations]") {
  for (int exponent = -149; exponent < 128; ++exponent) {
    auto x = testing::random_normals(256, 1.0f, static_cast<std::uint32_t>(exponent + 1000));
    float peak = 0.0f;
    for (const float value : x) peak = std::max(peak, std::abs(value));
    for (float& value : x) value = std::ldexp(value / peak, exponent);
    x[17] = std::ldexp(-1.9999999f, exponent);  // the largest, with a full mantissa
    const auto block = quantized<BlockQ8_K>(x);
    CAPTURE(exponent);
    REQUIRE(std::isfinite(block.d));
    if (std::abs(x[17]) < kLeastAmax) {
      REQUIRE(block.d == 0.0f);
      REQUIRE(code_sum(block) == 0);
      continue;
    }
    REQUIRE(block.qs[17] == -127);
    for (std::size_t s = 0; s < 16; ++s) {
      int sum = 0;
      for (std::size_t j = 0; j < 16; ++j) sum += block.qs[16 * s + j];
      REQUIRE(block.bsums[s] == sum);
    }
    for (std::size_t j = 0; j < 256; ++j) {
      REQUIRE(std::abs(block.qs[j]) <= 127);
      // Half a step, plus the roundings of d and of the product; in f64, for 127 * d may overflow.
      const double d = static_cast<double>(block.d);
      REQUIRE(std::abs(static_cast<double>(x[j]) - d * block.qs[j]) <= 0.5001 * d + 0x1p-140);
    }
  }
}

TEST_CASE("zeros and vanishing blocks have d = 0", "[quant][activations]") {
  const auto value = GENERATE(0.0f, -0.0f, 1.0e-45f, -1.1754942e-38f, 3.7e-37f);
  const auto block = quantized<BlockQ8_32>(std::vector<float>(32, value));
  REQUIRE(std::bit_cast<std::uint32_t>(block.d) == 0);
  REQUIRE(code_sum(block) == 0);
  REQUIRE(block.sum == 0);
  REQUIRE(block.zero == 0);
  const auto above = quantized<BlockQ8_32>(std::vector<float>(32, 3.75e-37f));
  REQUIRE(above.qs[0] == 127);
}

TEST_CASE("NaN and Inf are kept in d and leave no code", "[quant][activations]") {
  const auto bad = GENERATE(as<float>{}, kInf, -kInf, kNan, -kNan);
  const auto at = GENERATE(0, 13, 31);
  auto x = testing::random_normals(32, 1.0f, 5);
  x[static_cast<std::size_t>(at)] = bad;
  const auto block = quantized<BlockQ8_32>(x);
  CAPTURE(bad);
  REQUIRE(std::isnan(block.d) == std::isnan(bad));
  REQUIRE(!std::isfinite(block.d));
  REQUIRE(code_sum(block) == 0);
  REQUIRE(block.sum == 0);
  // NaN wins over infinity wherever they stand.
  x[5] = kInf;
  x[6] = kNan;
  x[7] = -kInf;
  REQUIRE(std::isnan(quantized<BlockQ8_32>(x).d));
}

TEST_CASE("each weight type has its activation format", "[quant][activations]") {
  for (const BlockTraits& traits : all_block_traits()) {
    const ActivationFormat format = activation_format(traits.type);
    // Blocks of activations for one of weights.
    const std::size_t several =
        traits.block_weights == 64 || traits.block_weights == 128 ? traits.block_weights / 32 : 1;
    REQUIRE(activation_block_size(format) * several == traits.block_weights);
  }
  REQUIRE(activation_row_bytes(ActivationFormat::kQ8_K, 512) == 2 * sizeof(BlockQ8_K));
  REQUIRE(activation_row_bytes(ActivationFormat::kQ8_32, 64) == 2 * sizeof(BlockQ8_32));
  REQUIRE(activation_row_bytes(ActivationFormat::kF32, 3) == 12);
}

}  // namespace
}  // namespace llm
