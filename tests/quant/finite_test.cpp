#include "quant/formats/finite.h"

#include <limits>

#include "tests/quant/quant_testing.h"
#include "tests/support/catch.h"

namespace llm {
namespace {

TEST_CASE("the first block with an Inf or NaN scale is found", "[quant][finite]") {
  const auto type = GENERATE(from_range(testing::all_weight_types()));
  const auto bad = GENERATE(as<std::uint16_t>{}, 0x7C00, 0x7E00, 0xFC00, 0xFFFF, 0x7C01);
  const auto at = GENERATE(as<std::size_t>{}, 0, 1, 1030, 2299);
  const std::size_t block_bytes = block_traits(type).block_bytes;
  const auto clean = testing::random_blocks(type, 2300 * block_traits(type).block_weights, 77);
  CAPTURE(block_traits(type).name, bad, at);
  REQUIRE(first_nonfinite_block(type, clean) == std::nullopt);

  auto offsets = testing::f16_offsets(type);
  if (offsets.empty()) offsets = {0};
  for (const std::size_t offset : offsets) {
    auto blocks = clean;
    for (const std::size_t block : {at, std::size_t{2299}}) {
      if (type == WeightType::kF32 || type == WeightType::kQ8_K) {
        const float wide = f16_to_f32(bad);
        std::memcpy(blocks.data() + block * block_bytes, &wide, sizeof(wide));
      } else if (type == WeightType::kMXFP4) {
        blocks[block * block_bytes] = std::byte{0xFF};
      } else if (type == WeightType::kNVFP4) {
        blocks[block * block_bytes + bad % 4] = bad == 0x7C00 ? std::byte{0x7F} : std::byte{0x80};
      } else if (type == WeightType::kIQ1_M) {
        testing::store_iq1_m_scale(blocks, block * block_bytes, bad);
      } else {
        const std::uint16_t half = type == WeightType::kBF16 ? f32_to_bf16(f16_to_f32(bad)) : bad;
        testing::store_f16(blocks, block * block_bytes + offset, half);
      }
    }
    REQUIRE(first_nonfinite_block(type, blocks) == at);
  }
}

TEST_CASE("no blocks are finite", "[quant][finite]") {
  REQUIRE(first_nonfinite_block(WeightType::kQ4_K, {}) == std::nullopt);
}

}  // namespace
}  // namespace llm
