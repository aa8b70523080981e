#include "quant/formats/finite.h"

#include "tests/quant/quant_testing.h"

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
      if (type == WeightType::kMXFP4) {
        blocks[block * block_bytes] = std::byte{0xFF};
      } else if (type == WeightType::kNVFP4) {
        blocks[block * block_bytes + bad % 4] = bad == 0x7C00 ? std::byte{0x7F} : std::byte{0x80};
      } else {
        testing::store_scale(type, blocks, block * block_bytes, offset, bad);
      }
    }
    REQUIRE(first_nonfinite_block(type, blocks) == at);
  }
}

TEST_CASE("the magnitude of a block is the largest of its scales", "[quant][finite]") {
  const auto type = GENERATE(from_range(testing::all_weight_types()));
  const std::size_t block_bytes = block_traits(type).block_bytes;
  constexpr std::size_t kBlocks = 9;
  CAPTURE(block_traits(type).name);
  const auto clean = testing::random_blocks(type, kBlocks * block_traits(type).block_weights, 5);
  std::array<float, kBlocks> usual;
  block_magnitudes(type, clean, usual);
  auto offsets = testing::f16_offsets(type);
  if (offsets.empty()) offsets = {0};
  for (const std::size_t offset : offsets) {
    auto blocks = clean;
    const std::size_t at = 4 * block_bytes;
    constexpr std::uint16_t kHuge = 0xF800;  // -32768
    if (type == WeightType::kMXFP4) {
      blocks[at] = std::byte{127 + 16};
    } else if (type == WeightType::kNVFP4) {
      blocks[at + 3] = std::byte{0x7E};
    } else {
      testing::store_scale(type, blocks, at, offset, kHuge);
    }
    std::array<float, kBlocks> found;
    block_magnitudes(type, blocks, found);
    CHECK(found[4] == (type == WeightType::kNVFP4 ? 224.0F : 32768.0F));
    found[4] = usual[4];
    CHECK(found == usual);
  }
}

TEST_CASE("no blocks are finite", "[quant][finite]") {
  REQUIRE(first_nonfinite_block(WeightType::kQ4_K, {}) == std::nullopt);
}

}  // namespace
}  // namespace llm
