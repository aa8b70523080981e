#include "engine/state/kv_row.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "quant/formats/activations.h"
#include "quant/formats/half.h"

namespace llm {
namespace {

constexpr std::size_t kGroup = KvLayout::kGroup;

void round_to_half(const float* x, std::size_t n, std::uint16_t* y) {
  std::transform(x, x + n, y, f32_to_f16);
}

void round_groups(const float* x, std::size_t n, KernelQ8x32* out, std::size_t n_tokens) {
  for (std::size_t k = 0; k < n; k += kGroup, out += n_tokens) {
    BlockQ8_32 block;
    quantize_block(std::span(x + k, kGroup).first<kGroup>(), block);
    std::ranges::copy(block.qs, out->qs);
    out->d = block.d;
    out->sum = block.sum;
  }
}

template <typename T>
T load(const std::byte* from) {
  T x;
  std::memcpy(&x, from, sizeof(T));
  return x;
}

}  // namespace

const KvRounding KvRounding::kDefinition = {round_to_half, round_groups};

void KvRow::store(std::size_t d, std::span<const float> key, std::span<const float> value,
                  const KvRounding& rounding) const {
  LLM_CHECK(d + key.size() <= layout_.head_dim && key.size() == value.size());
  switch (layout_.type) {
    case KvType::kF32:
      return store_elements(d, key, value);
    case KvType::kF16:
      return store_half(d, key, value, rounding);
    case KvType::kQ8:
      return store_groups(d, key, value, rounding);
  }
}

template <typename T>
void KvRow::store_elements(std::size_t d, std::span<const T> key, std::span<const T> value) const {
  std::byte* keys = keys_ + layout_.key_at(at_, d);
  for (std::size_t j = 0; j < key.size(); ++j)
    std::memcpy(keys + j * KvLayout::kLanes * sizeof(T), &key[j], sizeof(T));
  std::memcpy(values_ + layout_.value_at(at_, d), value.data(), value.size_bytes());
}

void KvRow::store_half(std::size_t d, std::span<const float> key, std::span<const float> value,
                       const KvRounding& rounding) const {
  constexpr std::size_t kPiece = 128;
  std::uint16_t half[2][kPiece];
  for (std::size_t i = 0; i < key.size(); i += kPiece) {
    const std::size_t n = std::min(kPiece, key.size() - i);
    rounding.to_half(&key[i], n, half[0]);
    rounding.to_half(&value[i], n, half[1]);
    store_elements(d + i, std::span<const std::uint16_t>(half[0], n),
                   std::span<const std::uint16_t>(half[1], n));
  }
}

void KvRow::store_groups(std::size_t d, std::span<const float> key, std::span<const float> value,
                         const KvRounding& rounding) const {
  LLM_CHECK(d % kGroup == 0);
  for (std::size_t i = 0; i < key.size(); i += kGroup) {
    const std::size_t g = (d + i) / kGroup;
    const std::size_t n = layout_.group_dims(g);
    LLM_CHECK(i + n <= key.size());
    // Zeros fill up a short group: they change neither its scale nor the other codes.
    float x[2][kGroup] = {};
    std::copy_n(&key[i], n, x[0]);
    std::copy_n(&value[i], n, x[1]);
    KernelQ8x32 groups[2];
    rounding.quantize_q8x32(x[0], 2 * kGroup, groups, 1);
    store_group(g, groups[0], groups[1]);
  }
}

void KvRow::store_group(std::size_t group, const KernelQ8x32& key, const KernelQ8x32& value) const {
  constexpr std::size_t kWord = KvLayout::kWord;
  std::byte* keys = keys_ + layout_.key_at(at_, group * kGroup);
  for (std::size_t w = 0; w < layout_.group_words(group); ++w)
    std::memcpy(keys + w * KvLayout::kLanes * kWord, key.qs + w * kWord, kWord);
  std::byte* values = values_ + layout_.value_at(at_, group * kGroup);
  for (std::size_t j = 0; j < layout_.group_dims(group); ++j)
    values[j * kWord] = static_cast<std::byte>(value.qs[j] + KvLayout::kValueOffset);
  std::memcpy(keys_ + layout_.key_scale_at(at_, group), &key.d, sizeof(key.d));
  std::memcpy(values_ + layout_.value_scale_at(at_, group), &value.d, sizeof(value.d));
}

void KvRow::load_raw(std::span<std::byte> key, std::span<std::byte> value) const {
  LLM_CHECK(key.size() == layout_.row_bytes() && value.size() == key.size());
  if (layout_.type != KvType::kQ8) {
    const std::size_t size = layout_.element_bytes();
    for (std::size_t d = 0; d < layout_.head_dim; ++d)
      std::memcpy(&key[d * size], keys_ + layout_.key_at(at_, d), size);
    std::memcpy(value.data(), values_ + layout_.value_at(at_, 0), value.size());
    return;
  }
  for (std::size_t d = 0; d < layout_.head_dim; ++d) {
    key[d] = static_cast<std::byte>(key_code(d));
    value[d] = static_cast<std::byte>(value_code(d));
  }
  for (std::size_t g = 0; g < layout_.n_groups(); ++g) {
    const std::size_t at = layout_.head_dim + g * sizeof(float);
    std::memcpy(&key[at], keys_ + layout_.key_scale_at(at_, g), sizeof(float));
    std::memcpy(&value[at], values_ + layout_.value_scale_at(at_, g), sizeof(float));
  }
}

void KvRow::store_raw(std::span<const std::byte> key, std::span<const std::byte> value) const {
  LLM_CHECK(key.size() == layout_.row_bytes() && value.size() == key.size());
  if (layout_.type != KvType::kQ8) {
    const std::size_t size = layout_.element_bytes();
    for (std::size_t d = 0; d < layout_.head_dim; ++d)
      std::memcpy(keys_ + layout_.key_at(at_, d), &key[d * size], size);
    std::memcpy(values_ + layout_.value_at(at_, 0), value.data(), value.size());
    return;
  }
  const auto group_of = [&](std::span<const std::byte> row, std::size_t g) {
    KernelQ8x32 group{};
    std::memcpy(group.qs, &row[g * kGroup], layout_.group_dims(g));
    group.d = load<float>(&row[layout_.head_dim + g * sizeof(float)]);
    return group;
  };
  for (std::size_t g = 0; g < layout_.n_groups(); ++g)
    store_group(g, group_of(key, g), group_of(value, g));
}

float KvRow::load_float(const std::byte* from) const {
  return layout_.type == KvType::kF16 ? f16_to_f32(load<std::uint16_t>(from)) : load<float>(from);
}

float KvRow::key(std::size_t d) const {
  if (layout_.type == KvType::kQ8) return static_cast<float>(key_code(d)) * key_scale(d / kGroup);
  return load_float(keys_ + layout_.key_at(at_, d));
}

float KvRow::value(std::size_t d) const {
  if (layout_.type == KvType::kQ8)
    return static_cast<float>(value_code(d)) * value_scale(d / kGroup);
  return load_float(values_ + layout_.value_at(at_, d));
}

std::int8_t KvRow::key_code(std::size_t d) const {
  return load<std::int8_t>(keys_ + layout_.key_at(at_, d));
}

std::int8_t KvRow::value_code(std::size_t d) const {
  return static_cast<std::int8_t>(load<std::uint8_t>(values_ + layout_.value_at(at_, d)) -
                                  KvLayout::kValueOffset);
}

float KvRow::key_scale(std::size_t group) const {
  return load<float>(keys_ + layout_.key_scale_at(at_, group));
}

float KvRow::value_scale(std::size_t group) const {
  return load<float>(values_ + layout_.value_scale_at(at_, group));
}

}  // namespace llm
