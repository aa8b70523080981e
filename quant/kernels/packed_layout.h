#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "quant/formats/block_formats.h"

namespace llm {

/// Bits of `mask` and those `distance` above change places. Doing it twice undoes it.
struct BitExchange {
  int distance = 0;
  std::uint32_t mask = 0;

  constexpr std::uint32_t operator()(std::uint32_t v) const {
    const std::uint32_t differ = (v ^ (v >> distance)) & mask;
    return v ^ differ ^ (differ << distance);
  }
};

/// A run of equal elements inside a block: the unit in which packing interleaves rows.
struct PackedField {
  std::size_t offset;         ///< byte offset of the first element in the file's block
  std::size_t element_bytes;  ///< 1 (scale bytes), 2 (f16, bf16), 4 (f32; words of 4 code bytes)
  std::size_t count;          ///< elements
  /// What packing does to each word, in this order: a codec then needs no more than shifts.
  std::array<BitExchange, 2> exchanges = {};

  constexpr bool exchanges_bits() const { return exchanges[0].mask != 0; }
  constexpr std::size_t bytes() const { return element_bytes * count; }
};

/// `count` elements from byte `offset` of the file's block on; two halves are a scale and the
/// minimum after it.
constexpr PackedField packed_bytes(std::size_t offset, std::size_t count) {
  return {offset, 1, count};
}
constexpr PackedField packed_halves(std::size_t offset, std::size_t count) {
  return {offset, 2, count};
}
constexpr PackedField packed_words(std::size_t offset, std::size_t count) {
  return {offset, 4, count};
}

/// kFields: the fields of a block in packed order, each byte of the block in one of them. Packing
/// and the codecs (codec.h) both take the order from here.
///
/// A good order is the one in which the codec reads, because hardware prefetches what is read from
/// end to end: in the file's order, with scales last and high bits apart, a Q6_K matrix streams at
/// less than a third of the speed.
template <class Block>
struct PackedLayout;

/// kHalves halves (a scale, and what may follow it), and all else by words.
template <class Block, std::size_t kHalves, std::size_t kHalvesAt = 0,
          std::size_t kRestAt = 2 * kHalves>
struct HalvesAndWords {
  static constexpr std::array kFields = {packed_halves(kHalvesAt, kHalves),
                                         packed_words(kRestAt, (sizeof(Block) - 2 * kHalves) / 4)};
};
template <class Block>
struct OnlyWords {
  static constexpr std::array kFields = {packed_words(0, sizeof(Block) / 4)};
};

template <>
struct PackedLayout<BlockF32> : OnlyWords<BlockF32> {};
template <>
struct PackedLayout<BlockF16> {
  static constexpr std::array kFields = {packed_halves(0, 1)};
};
template <>
struct PackedLayout<BlockBF16> {
  static constexpr std::array kFields = {packed_halves(0, 1)};
};
template <>
struct PackedLayout<BlockQ4_0> : HalvesAndWords<BlockQ4_0, 1> {};
template <>
struct PackedLayout<BlockQ4_1> : HalvesAndWords<BlockQ4_1, 2> {};
template <>
struct PackedLayout<BlockQ5_0> {
  using B = BlockQ5_0;
  static constexpr std::array kFields = {packed_halves(offsetof(B, d), 1),
                                         packed_words(offsetof(B, qh), 1),
                                         packed_words(offsetof(B, qs), 4)};
};
template <>
struct PackedLayout<BlockQ5_1> {
  using B = BlockQ5_1;
  static constexpr std::array kFields = {packed_halves(offsetof(B, d), 2),
                                         packed_words(offsetof(B, qh), 1),
                                         packed_words(offsetof(B, qs), 4)};
};
template <>
struct PackedLayout<BlockQ8_0> : HalvesAndWords<BlockQ8_0, 1> {};
template <>
struct PackedLayout<BlockQ2_K> {
  using B = BlockQ2_K;
  static constexpr std::array kFields = {packed_bytes(offsetof(B, scales), 16),
                                         packed_words(offsetof(B, qs), 16),
                                         packed_halves(offsetof(B, d), 2)};
};
template <>
struct PackedLayout<BlockQ3_K> {
  using B = BlockQ3_K;
  static constexpr std::array kFields = {
      packed_bytes(offsetof(B, scales), 12), packed_words(offsetof(B, hmask), 8),
      packed_words(offsetof(B, qs), 16), packed_halves(offsetof(B, d), 1)};
};
template <>
struct PackedLayout<BlockQ4_K> {
  using B = BlockQ4_K;
  static constexpr std::array kFields = {packed_halves(offsetof(B, d), 2),
                                         packed_bytes(offsetof(B, scales), 12),
                                         packed_words(offsetof(B, qs), 32)};
};
// Twice: four words of qh, then the words of the four runs of qs that they complete.
template <>
struct PackedLayout<BlockQ5_K> {
  using B = BlockQ5_K;
  static constexpr std::size_t kQs = offsetof(B, qs);
  static constexpr std::array kFields = {
      packed_halves(offsetof(B, d), 2), packed_bytes(offsetof(B, scales), 12),
      packed_words(offsetof(B, qh), 4), packed_words(kQs, 4),
      packed_words(kQs + 32, 4),        packed_words(kQs + 64, 4),
      packed_words(kQs + 96, 4),        packed_words(offsetof(B, qh) + 16, 4),
      packed_words(kQs + 16, 4),        packed_words(kQs + 48, 4),
      packed_words(kQs + 80, 4),        packed_words(kQs + 112, 4)};
};
// Four times between scales and d: four words of qh and of both runs of ql that they complete.
template <>
struct PackedLayout<BlockQ6_K> {
  using B = BlockQ6_K;
  static constexpr std::size_t kQh = offsetof(B, qh);
  static constexpr std::size_t kQl = offsetof(B, ql);
  static constexpr std::array kFields = {packed_bytes(offsetof(B, scales), 16),
                                         packed_words(kQh, 4),
                                         packed_words(kQl, 4),
                                         packed_words(kQl + 32, 4),
                                         packed_words(kQh + 16, 4),
                                         packed_words(kQl + 16, 4),
                                         packed_words(kQl + 48, 4),
                                         packed_words(kQh + 32, 4),
                                         packed_words(kQl + 64, 4),
                                         packed_words(kQl + 96, 4),
                                         packed_words(kQh + 48, 4),
                                         packed_words(kQl + 80, 4),
                                         packed_words(kQl + 112, 4),
                                         packed_halves(offsetof(B, d), 1)};
};
template <>
struct PackedLayout<BlockQ8_K> {
  using B = BlockQ8_K;
  static constexpr std::array kFields = {packed_words(offsetof(B, d), 1),
                                         packed_words(offsetof(B, qs), 64),
                                         packed_halves(offsetof(B, bsums), 16)};
};

template <>
struct PackedLayout<BlockIQ4_NL> : HalvesAndWords<BlockIQ4_NL, 1> {};

template <>
struct PackedLayout<BlockIQ4_XS> {
  using B = BlockIQ4_XS;
  static constexpr std::array kFields = {
      packed_halves(offsetof(B, d), 1), packed_bytes(offsetof(B, scales_h), 2),
      packed_bytes(offsetof(B, scales_l), 4), packed_words(offsetof(B, qs), 32)};
};

template <>
struct PackedLayout<BlockMXFP4> {
  using B = BlockMXFP4;
  static constexpr std::array kFields = {packed_bytes(offsetof(B, d), 1),
                                         packed_words(offsetof(B, qs), 4)};
};

template <>
struct PackedLayout<BlockTQ1_0> : HalvesAndWords<BlockTQ1_0, 1, offsetof(BlockTQ1_0, d), 0> {};
template <>
struct PackedLayout<BlockTQ2_0> : HalvesAndWords<BlockTQ2_0, 1, offsetof(BlockTQ2_0, d), 0> {};
template <>
struct PackedLayout<BlockIQ3_S> : HalvesAndWords<BlockIQ3_S, 1> {};
template <>
struct PackedLayout<BlockIQ3_XXS> : HalvesAndWords<BlockIQ3_XXS, 1> {};
template <>
struct PackedLayout<BlockIQ2_S> : HalvesAndWords<BlockIQ2_S, 1> {};
template <>
struct PackedLayout<BlockIQ2_XS> : HalvesAndWords<BlockIQ2_XS, 1> {};
template <>
struct PackedLayout<BlockIQ2_XXS> : HalvesAndWords<BlockIQ2_XXS, 1> {};
template <>
struct PackedLayout<BlockIQ1_S> : HalvesAndWords<BlockIQ1_S, 1> {};
template <>
struct PackedLayout<BlockIQ1_M> : OnlyWords<BlockIQ1_M> {};
template <>
struct PackedLayout<BlockNVFP4> : OnlyWords<BlockNVFP4> {};
// In the file bit i of a word's byte b is weight 8 b + i. With b's bits exchanged with the two low
// ones of i it is weight 16 (i / 2 mod 2) + 8 (i mod 2) + 4 (i / 4) + b.
template <>
struct PackedLayout<BlockQ1_0> {
  static constexpr std::array kFields = {
      packed_halves(offsetof(BlockQ1_0, d), 1),
      PackedField{offsetof(BlockQ1_0, qs), 4, 4, {{{14, 0x0000CCCC}, {7, 0x00AA00AA}}}}};
};
// In the file bit pair i of a word's byte b is weight 4 b + i: exchanged, 4 i + b.
template <>
struct PackedLayout<BlockQ2_0> {
  static constexpr std::array kFields = {
      packed_halves(offsetof(BlockQ2_0, d), 1),
      PackedField{offsetof(BlockQ2_0, qs), 4, 4, {{{12, 0x0000F0F0}, {6, 0x00CC00CC}}}}};
};

/// Whether every byte of a block is in exactly one field.
template <class Block>
consteval bool covers_block() {
  for (std::size_t byte = 0; byte < sizeof(Block); ++byte) {
    std::size_t found = 0;
    for (const PackedField& field : PackedLayout<Block>::kFields) {
      if (byte >= field.offset && byte - field.offset < field.bytes()) ++found;
    }
    if (found != 1) return false;
  }
  return true;
}

/// How many bytes of its row's block precede, in packed order, the run of elements that lies at
/// run.offset in the file. Compiles only if the run is part of one field of such elements.
template <class Block>
consteval std::size_t packed_position(PackedField run) {
  std::size_t before = 0;
  for (const PackedField& field : PackedLayout<Block>::kFields) {
    const std::size_t into = run.offset - field.offset;
    if (run.offset >= field.offset && into + run.bytes() <= field.bytes() &&
        run.element_bytes == field.element_bytes && into % field.element_bytes == 0) {
      return before + into;
    }
    before += field.bytes();
  }
  throw "the run is not part of one packed field";
}

}  // namespace llm
