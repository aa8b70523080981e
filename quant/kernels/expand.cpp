#include "quant/kernels/expand.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "quant/formats/block_visit.h"
#include "quant/formats/codes.h"
#include "quant/numerics/contract.h"

namespace llm {
namespace {

static_assert(std::endian::native == std::endian::little, "eights of codes are words of bytes");

constexpr std::size_t kRows = contract::kPanelRows;
constexpr std::uint64_t kOnes = 0x0101'0101'0101'0101U;  ///< a byte of 1 for each of eight codes

/// Row r's elements of a run, one after the other.
template <std::size_t kSize>
void gather(const std::byte* packed, std::size_t r, std::size_t count, std::byte* to) {
  const std::byte* from = packed + r * kSize;
  for (std::size_t i = 0; i < count; ++i)
    std::memcpy(to + i * kSize, from + i * kRows * kSize, kSize);
}

/// Row r's block, out of the packed block of 16 rows.
template <class Block>
Block row_of(const std::byte* packed, std::size_t r) {
  Block block;
  auto* bytes = reinterpret_cast<std::byte*>(&block);
  for (const PackedField& field : PackedLayout<Block>::kFields) {
    if (field.element_bytes == 1) gather<1>(packed, r, field.count, bytes + field.offset);
    if (field.element_bytes == 2) gather<2>(packed, r, field.count, bytes + field.offset);
    if (field.element_bytes == 4) gather<4>(packed, r, field.count, bytes + field.offset);
    packed += kRows * field.bytes();
  }
  return block;
}

/// Where a row's fields go in a packed block of `To`.
template <class To>
struct RowOut {
  std::byte* block;
  std::size_t r;

  template <std::size_t kOffset, std::size_t kCount, class T>
  void put(std::size_t i, T value) const {
    constexpr PackedField kRun{kOffset, sizeof(T), kCount};
    constexpr std::size_t kAt = kRows * packed_position<To>(kRun);
    std::memcpy(block + kAt + (kRows * i + r) * sizeof(T), &value, sizeof(T));
  }
  /// Codes 8 i .. 8 i + 7.
  void put_eight(std::size_t i, std::uint64_t codes) const {
    constexpr std::size_t kWords = sizeof(To::qs) / 4;
    put<offsetof(To, qs), kWords>(2 * i, static_cast<std::uint32_t>(codes));
    put<offsetof(To, qs), kWords>(2 * i + 1, static_cast<std::uint32_t>(codes >> 32));
  }
};

/// The values of a codebook's entries, a byte for each weight.
template <class Block>
auto entry_bytes() {
  constexpr std::size_t kEntry = Block::kEntryWeights;
  constexpr unsigned kBits = kEntry == 8 ? 2 : 3;
  std::array<std::uint64_t, std::size(Block::kBook)> bytes{};
  for (std::size_t e = 0; e < bytes.size(); ++e) {
    for (std::size_t k = 0; k < kEntry; ++k) {
      const unsigned index = Block::kBook[e] >> (kBits * k) & ((1U << kBits) - 1);
      const auto value = static_cast<std::uint8_t>(Block::kBookValues[index]);
      bytes[e] |= std::uint64_t{value} << (8 * k);
    }
  }
  return bytes;
}

/// Byte k is 0xFF where bit k is set.
std::array<std::uint64_t, 256> masks_of_signs() {
  std::array<std::uint64_t, 256> masks{};
  for (std::size_t bits = 0; bits < masks.size(); ++bits) {
    for (std::size_t k = 0; k < 8; ++k)
      if ((bits >> k & 1) != 0) masks[bits] |= std::uint64_t{0xFF} << (8 * k);
  }
  return masks;
}

/// Each byte of a + each of b, modulo 256: with the highest bits left out, none carries into the
/// next.
std::uint64_t add_bytes(std::uint64_t a, std::uint64_t b) {
  constexpr std::uint64_t kHigh = 0x80 * kOnes;
  return ((a & ~kHigh) + (b & ~kHigh)) ^ ((a ^ b) & kHigh);
}

/// Codes 8 i .. 8 i + 7 of a block.
template <HasCodebook Block>
std::uint64_t eight_codes(const Block& block, std::size_t i) {
  static const auto kBytes = entry_bytes<Block>();
  static const auto kMasks = masks_of_signs();
  std::uint64_t values = 0;
  if constexpr (Block::kEntryWeights == 8) {
    values = kBytes[contract::entry(block, i)];
  } else {
    values = kBytes[contract::entry(block, 2 * i)] | kBytes[contract::entry(block, 2 * i + 1)]
                                                         << 32;
  }
  if constexpr (requires { contract::delta(block, i); }) {
    return add_bytes(values, contract::delta(block, i) < 0 ? ~std::uint64_t{0} : kOnes);
  } else {
    const std::uint64_t mask = kMasks[contract::sign_bits(block, i)];
    return add_bytes(values ^ mask, mask & kOnes);  // -v = ~v + 1
  }
}

/// The same weight by weight.
template <class Block>
std::uint64_t each_of_eight(const Block& block, std::size_t i) {
  std::uint64_t codes = 0;
  for (std::size_t k = 0; k < 8; ++k) {
    const auto code = static_cast<std::uint8_t>(contract::code(block, 8 * i + k));
    codes |= std::uint64_t{code} << (8 * k);
  }
  return codes;
}

std::uint64_t load_eight(const std::uint8_t* bytes) {
  std::uint64_t eight;
  std::memcpy(&eight, bytes, sizeof(eight));
  return eight;
}

std::uint64_t eight_codes(const BlockTQ2_0& block, std::size_t i) {
  const std::uint64_t bytes = load_eight(block.qs + 32 * (i / 16) + 8 * (i % 4));
  return add_bytes(bytes >> (2 * (i % 16 / 4)) & 3 * kOnes, ~std::uint64_t{0});
}

/// Eight neighbouring bytes have the same digit of eight neighbouring weights, but for the last 16.
std::uint64_t eight_codes(const BlockTQ1_0& block, std::size_t i) {
  if (i >= 30) return each_of_eight(block, i);
  constexpr std::uint64_t kEven = 0x00FF'00FF'00FF'00FFU;
  constexpr std::uint64_t kPowers[] = {1, 3, 9, 27, 81};
  const bool first = i < 20;
  const std::uint64_t bytes = load_eight(block.qs + (first ? 8 * (i % 4) : 32 + 8 * (i % 2)));
  const std::uint64_t power = kPowers[first ? i / 4 : (i - 20) / 2];
  const auto digits = [power](std::uint64_t halves) {
    return ((halves * power & kEven) * 3 >> 8) & kEven;
  };
  return add_bytes(digits(bytes & kEven) | digits(bytes >> 8 & kEven) << 8, ~std::uint64_t{0});
}

std::uint64_t eight_codes(const BlockNVFP4& block, std::size_t i) {
  const std::uint64_t codes = load_eight(block.qs + 8 * (i / 2)) >> (4 * (i % 2)) & 15 * kOnes;
  const auto where = [codes](int bit) { return (codes >> bit & kOnes) * 0xFF; };
  // Magnitudes of 0 .. 3 are the code's last bits; those above are (2 or 3) times (2 or 4).
  const std::uint64_t twice = 4 * kOnes | (codes & kOnes) << 1;
  const std::uint64_t large = twice + (twice & where(1));
  const std::uint64_t magnitudes = (codes & 3 * kOnes & ~where(2)) | (large & where(2));
  return add_bytes(magnitudes ^ where(3), where(3) & kOnes);
}

template <class Block>
void expand_row(const Block& block, RowOut<BlockExpanded> out) {
  constexpr std::size_t kSubs = BlockExpanded::kWeights / BlockExpanded::kSubBlock;
  out.put<offsetof(BlockExpanded, d), 1>(0, contract::block_scale(block));
  for (std::size_t s = 0; s < kSubs; ++s) {
    int scale = 1;
    if constexpr (HasSubBlocks<Block>)
      scale = contract::sub_scale(block, s * BlockExpanded::kSubBlock / Block::kSubBlock).scale;
    out.put<offsetof(BlockExpanded, scales), kSubs>(s, static_cast<std::int8_t>(scale));
  }
  for (std::size_t i = 0; i < Block::kWeights / 8; ++i) out.put_eight(i, eight_codes(block, i));
}

void expand_row(const BlockNVFP4& block, std::byte* expanded, std::size_t r) {
  for (std::size_t s = 0; s < kNvfp4Blocks; ++s, expanded += kRows * sizeof(BlockQ8_0)) {
    const RowOut<BlockQ8_0> out{expanded, r};
    const std::uint16_t d = f32_to_f16(contract::scale_of_16(block, s));
    out.put<offsetof(BlockQ8_0, d), 1>(0, d);
    for (std::size_t i = 0; i < 4; ++i)
      out.put_eight(i, i / 2 == s % 2 ? eight_codes(block, 2 * s + i % 2) : 0);
  }
}

}  // namespace

void expand_block(WeightType type, const std::byte* packed, std::byte* expanded) {
  visit_block_format(type, [&]<class Block>() {
    if constexpr (Block::kType == WeightType::kNVFP4) {
      for (std::size_t r = 0; r < kRows; ++r) expand_row(row_of<Block>(packed, r), expanded, r);
    } else if constexpr (kIsExpanded<Block>) {
      for (std::size_t r = 0; r < kRows; ++r)
        expand_row(row_of<Block>(packed, r), RowOut<BlockExpanded>{expanded, r});
    } else {
      LLM_CHECK(false && "kernels take this type as it is");
    }
  });
}

void expand_to_f32(WeightType type, const std::byte* packed, float* out) {
  alignas(64) std::byte expanded[kRows * sizeof(BlockExpanded)];
  static_assert(sizeof(expanded) >= kNvfp4Blocks * kRows * sizeof(BlockQ8_0));
  expand_block(type, packed, expanded);
  for (std::size_t r = 0; r < kRows; ++r) {
    if (type == WeightType::kNVFP4) {
      for (std::size_t s = 0; s < kNvfp4Blocks; ++s) {
        const auto block = row_of<BlockQ8_0>(expanded + s * kRows * sizeof(BlockQ8_0), r);
        const std::int8_t* codes = block.qs + s % 2 * BlockNVFP4::kScaled;
        for (std::size_t i = 0; i < BlockNVFP4::kScaled; ++i)
          out[kRows * (BlockNVFP4::kScaled * s + i) + r] =
              f16_to_f32(block.d) * static_cast<float>(codes[i]);
      }
      continue;
    }
    const auto block = row_of<BlockExpanded>(expanded, r);
    for (std::size_t j = 0; j < BlockExpanded::kWeights; ++j) {
      const auto scale = static_cast<float>(block.scales[j / BlockExpanded::kSubBlock]);
      out[kRows * j + r] = block.d * scale * static_cast<float>(block.qs[j]);
    }
  }
}

}  // namespace llm
