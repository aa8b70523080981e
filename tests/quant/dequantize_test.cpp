#include "quant/formats/dequantize.h"

#include "quant/formats/finite.h"
#include "quant/formats/packed_scales.h"
#include "tests/quant/quant_testing.h"

namespace llm {
namespace {

using testing::read_golden;

TEST_CASE("dequantization equals the gguf package bit for bit", "[quant][golden]") {
  const auto type = GENERATE(from_range(testing::all_weight_types()));
  if (type == WeightType::kF32) return;
  const std::string name(block_traits(type).name);
  CAPTURE(name);
  const auto blocks = read_golden("dequant/" + name + ".blocks.bin");
  const auto expected = read_golden("dequant/" + name + ".expected.bin");
  REQUIRE(!blocks.empty());

  std::vector<float> actual(expected.size() / sizeof(float));
  REQUIRE(blocks.size() == row_bytes(type, actual.size()));
  contract::dequantize_row(type, blocks, actual);
  const auto difference = testing::first_difference(std::as_bytes(std::span(actual)), expected);
  const std::ptrdiff_t differing_weight = difference < 0 ? -1 : difference / 4;
  REQUIRE(differing_weight == -1);
}

TEST_CASE("a row may start at any byte", "[quant]") {
  const auto type = GENERATE(from_range(testing::all_weight_types()));
  const auto blocks = testing::random_blocks(type, 512, 3);
  std::vector<float> aligned(512);
  contract::dequantize_row(type, blocks, aligned);
  for (std::size_t shift = 1; shift < 4; ++shift) {
    std::vector<std::byte> moved(blocks.size() + shift);
    std::memcpy(moved.data() + shift, blocks.data(), blocks.size());
    std::vector<float> out(512);
    contract::dequantize_row(type, std::span(moved).subspan(shift), out);
    REQUIRE(std::memcmp(out.data(), aligned.data(), out.size() * sizeof(float)) == 0);
  }
}

TEST_CASE("block structs have the sizes of the traits table", "[quant]") {
  REQUIRE(sizeof(BlockQ4_K) == block_traits(WeightType::kQ4_K).block_bytes);
  REQUIRE(row_bytes(WeightType::kQ6_K, 512) == 2 * sizeof(BlockQ6_K));
  REQUIRE(row_bytes(WeightType::kQ8_K, 256) == sizeof(BlockQ8_K));
}

TEST_CASE("packed 6-bit scales come back as they went in", "[quant]") {
  for (int round = 0; round < 64; ++round) {
    ScaleMin pairs[8];
    std::uint8_t scales[16];
    for (int s = 0; s < 16; ++s) scales[s] = static_cast<std::uint8_t>((round * 29 + s * 23) % 64);
    for (int s = 0; s < 8; ++s) pairs[s] = {scales[s], scales[15 - s]};
    std::uint8_t k_packed[12];
    std::uint8_t q3_packed[12];
    pack_k_scale_mins(pairs, k_packed);
    pack_q3_k_scales(scales, q3_packed);
    for (std::size_t s = 0; s < 8; ++s) {
      REQUIRE(k_scale_min(k_packed, s).scale == pairs[s].scale);
      REQUIRE(k_scale_min(k_packed, s).min == pairs[s].min);
    }
    for (std::size_t s = 0; s < 16; ++s) REQUIRE(q3_k_scale(q3_packed, s) == scales[s]);
    std::uint8_t first[8];
    std::copy_n(scales, 8, first);
    BlockIQ4_XS block{};
    pack_iq4_xs_scales(first, block);
    for (std::size_t s = 0; s < 8; ++s) REQUIRE(iq4_xs_scale(block, s) == scales[s]);
  }
}

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
