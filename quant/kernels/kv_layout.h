#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/numerics/contract.h"

namespace llm {

/// How keys and values are stored in the cache (docs/numerics.md).
enum class KvType : std::uint8_t {
  kF16,
  kF32,
  kQ8,  ///< int8 codes, an f32 scale for each 32 elements of a head
};

/// Where one KV head's keys and values of 256 neighbouring positions (a page, one chunk of
/// attention) lie, chosen so that attention reads them in a straight line, without shuffles:
///
///   f16, f32  keys    [position / 16][dim][16 positions]
///             values  [position][dim]
///   q8        keys    [position / 16], of each group of 32 dims: codes [dim / 4][16 positions][4
///                     dims], then scales [16 positions]
///             values  [position / 32]: codes [8 words][dim, padded to 16][4 positions], then
///                     scales [group][32 positions]
///
/// Keys are words of four dims, for 4-byte dot products, as packed weights are. A word of values
/// holds the codes + 128 of positions 2 w, 2 w + 1, 2 w + 16 and 2 w + 17 of the 32: its even and
/// its odd bytes are pairs that lie 16 positions apart, for products of 16-bit pairs, and weights
/// come in registers of 16 positions.
struct KvLayout {
  static constexpr std::size_t kPositions = contract::kAttentionChunk;
  static constexpr std::size_t kLanes = contract::kPanelRows;
  static constexpr std::size_t kGroup = contract::kBlock;
  /// Positions of a block of q8 values.
  static constexpr std::size_t kBlock = 2 * kLanes;
  static constexpr std::size_t kWord = 4;
  /// Words of values of a block, for each dim.
  static constexpr std::size_t kBlockWords = kBlock / kWord;
  /// What is added to the codes of values.
  static constexpr int kValueOffset = 128;

  KvType type;
  std::size_t head_dim;

  /// Of f16 and f32.
  constexpr std::size_t element_bytes() const { return type == KvType::kF16 ? 2 : 4; }

  constexpr std::size_t n_groups() const { return (head_dim + kGroup - 1) / kGroup; }
  constexpr std::size_t group_dims(std::size_t group) const {
    return head_dim - group * kGroup < kGroup ? head_dim - group * kGroup : kGroup;
  }
  /// Words of a position's codes of keys.
  constexpr std::size_t group_words(std::size_t group) const {
    return (group_dims(group) + kWord - 1) / kWord;
  }
  constexpr std::size_t padded_dims() const { return (head_dim + kLanes - 1) / kLanes * kLanes; }

  /// Bytes of 16 positions' q8 keys, and of their group before `group`.
  constexpr std::size_t key_panel_bytes() const {
    return kLanes * kWord * ((head_dim + kWord - 1) / kWord + n_groups());
  }
  constexpr std::size_t key_group_offset(std::size_t group) const {
    return group * kLanes * (kGroup + kWord);
  }
  /// Bytes of 32 positions' q8 values, and of their codes.
  constexpr std::size_t value_block_bytes() const {
    return value_codes_bytes() + n_groups() * kBlock * sizeof(float);
  }
  constexpr std::size_t value_codes_bytes() const { return kBlockWords * padded_dims() * kWord; }

  /// Bytes of a page's keys, and of its values, of one head.
  constexpr std::size_t keys_bytes() const {
    return type == KvType::kQ8 ? kPositions / kLanes * key_panel_bytes()
                               : kPositions * head_dim * element_bytes();
  }
  constexpr std::size_t values_bytes() const {
    return type == KvType::kQ8 ? kPositions / kBlock * value_block_bytes()
                               : kPositions * head_dim * element_bytes();
  }

  /// Offset of an element (of q8, of its code) of a position of the page, from the head's keys on.
  constexpr std::size_t key_at(std::size_t position, std::size_t dim) const {
    const std::size_t lane = position % kLanes;
    if (type != KvType::kQ8)
      return ((position / kLanes * head_dim + dim) * kLanes + lane) * element_bytes();
    return position / kLanes * key_panel_bytes() + key_group_offset(dim / kGroup) +
           (dim % kGroup / kWord * kLanes + lane) * kWord + dim % kWord;
  }
  constexpr std::size_t key_scale_at(std::size_t position, std::size_t group) const {
    return position / kLanes * key_panel_bytes() + key_group_offset(group) +
           (group_words(group) * kLanes + position % kLanes) * sizeof(float);
  }
  /// The same from the head's values on; of q8, where code + kValueOffset is.
  constexpr std::size_t value_at(std::size_t position, std::size_t dim) const {
    if (type != KvType::kQ8) return (position * head_dim + dim) * element_bytes();
    const std::size_t lane = position % kLanes;
    const std::size_t byte = lane % 2 + position / kLanes % 2 * 2;
    return position / kBlock * value_block_bytes() + (lane / 2 * padded_dims() + dim) * kWord +
           byte;
  }
  constexpr std::size_t value_scale_at(std::size_t position, std::size_t group) const {
    return position / kBlock * value_block_bytes() + value_codes_bytes() +
           (group * kBlock + position % kBlock) * sizeof(float);
  }

  /// Bytes of one position's keys, or values, of a head without any padding, as files have them: of
  /// q8 the codes, then the scales.
  constexpr std::size_t row_bytes() const {
    return type == KvType::kQ8 ? head_dim + n_groups() * sizeof(float) : head_dim * element_bytes();
  }
};

}  // namespace llm
