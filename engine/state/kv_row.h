#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "quant/kernels/kernel_table.h"

namespace llm {

/// What rounds K and V when they are stored: the definition, or kernels, which equal it.
struct KvRounding {
  decltype(KernelTable::to_half) to_half;
  decltype(KernelTable::quantize_q8x32) quantize_q8x32;

  static const KvRounding kDefinition;
};

/// Changes whole heads of `head_dim` values, keys or values, before they are stored: for checks
/// that ask what a cache of another kind would do.
using KvFilter = void (*)(std::span<float> heads, std::size_t head_dim);

/// The keys and values of one position of one KV head, in their page.
class KvRow {
 public:
  /// @param keys, values  first bytes of the head's keys and values in the page
  KvRow(const KvLayout& layout, std::byte* keys, std::byte* values, std::size_t position_in_page)
      : layout_(layout), keys_(keys), values_(values), at_(position_in_page) {}

  /// Rounds and stores dims [d, d + key.size()). @pre of q8, d begins a group of 32 and the last
  /// group is whole
  void store(std::size_t d, std::span<const float> key, std::span<const float> value,
             const KvRounding& rounding) const;

  /// Without padding, as files have them (KvLayout::row_bytes()).
  void load_raw(std::span<std::byte> key, std::span<std::byte> value) const;
  void store_raw(std::span<const std::byte> key, std::span<const std::byte> value) const;

  /// An element, read back.
  float key(std::size_t d) const;
  float value(std::size_t d) const;
  /// Of q8: the code of an element, the scale of a group.
  std::int8_t key_code(std::size_t d) const;
  std::int8_t value_code(std::size_t d) const;
  float key_scale(std::size_t group) const;
  float value_scale(std::size_t group) const;

 private:
  template <typename T>
  void store_elements(std::size_t d, std::span<const T> key, std::span<const T> value) const;
  void store_half(std::size_t d, std::span<const float> key, std::span<const float> value,
                  const KvRounding& rounding) const;
  void store_groups(std::size_t d, std::span<const float> key, std::span<const float> value,
                    const KvRounding& rounding) const;
  void store_group(std::size_t group, const KernelQ8x32& key, const KernelQ8x32& value) const;
  float load_float(const std::byte* from) const;

  const KvLayout& layout_;
  std::byte* keys_;
  std::byte* values_;
  std::size_t at_;
};

}  // namespace llm
