#include "engine/forward/kv_cache.h"

#include <cstring>

#include "base/check.h"
#include "quant/formats/half.h"

namespace llm {
namespace {

std::size_t round_up_to_lanes(std::size_t n) {
  return (n + KvCache::kLanes - 1) / KvCache::kLanes * KvCache::kLanes;
}

void store_element(std::byte* base, std::size_t index, KvType type, float x) {
  if (type == KvType::kF16) {
    const std::uint16_t half = f32_to_f16(x);
    std::memcpy(base + index * sizeof(half), &half, sizeof(half));
  } else {
    std::memcpy(base + index * sizeof(x), &x, sizeof(x));
  }
}

float load_element(const std::byte* base, std::size_t index, KvType type) {
  if (type == KvType::kF16) {
    std::uint16_t half = 0;
    std::memcpy(&half, base + index * sizeof(half), sizeof(half));
    return f16_to_f32(half);
  }
  float x = 0;
  std::memcpy(&x, base + index * sizeof(x), sizeof(x));
  return x;
}

std::size_t key_index(std::size_t position, std::size_t d, std::size_t head_dim) {
  return (position / KvCache::kLanes * head_dim + d) * KvCache::kLanes + position % KvCache::kLanes;
}

}  // namespace

std::optional<std::uint64_t> KvCache::bytes_needed(const HyperParameters& config,
                                                   std::size_t context, KvType type) {
  return (CheckedSize(context).align_up(kLanes) * config.kv_rows() * config.n_layers *
          (type == KvType::kF16 ? 4 : 8))
      .value();
}

Result<KvCache> KvCache::create(const HyperParameters& config, std::size_t context, KvType type) {
  const auto bytes = bytes_needed(config, context, type);
  if (!bytes) return detail::out_of_memory(UINT64_MAX, "KV cache");
  LLM_TRY(auto data, AlignedBuffer<std::byte>::allocate(*bytes, "KV cache"));
  KvCache cache;
  cache.type_ = type;
  cache.context_ = round_up_to_lanes(context);
  cache.n_heads_ = config.n_kv_heads;
  cache.head_dim_ = config.head_dim;
  cache.data_ = std::move(data);
  return cache;
}

void KvCache::store(std::size_t layer, std::size_t first_row, std::size_t position,
                    std::span<const float> key, std::span<const float> value) {
  LLM_CHECK(position < context_ && key.size() == value.size());
  LLM_CHECK(first_row + key.size() <= n_heads_ * head_dim_);
  for (std::size_t i = 0; i < key.size(); ++i) {
    const std::size_t head = (first_row + i) / head_dim_;
    const std::size_t d = (first_row + i) % head_dim_;
    store_element(head_begin(layer, head, false), key_index(position, d, head_dim_), type_, key[i]);
    store_element(head_begin(layer, head, true), position * head_dim_ + d, type_, value[i]);
  }
}

float KvCache::key(std::size_t layer, std::size_t head, std::size_t position, std::size_t d) const {
  return load_element(keys(layer, head), key_index(position, d, head_dim_), type_);
}

float KvCache::value(std::size_t layer, std::size_t head, std::size_t position,
                     std::size_t d) const {
  return load_element(values(layer, head), position * head_dim_ + d, type_);
}

const std::byte* KvCache::keys(std::size_t layer, std::size_t head) const {
  return head_begin(layer, head, false);
}

const std::byte* KvCache::values(std::size_t layer, std::size_t head) const {
  return head_begin(layer, head, true);
}

std::byte* KvCache::head_begin(std::size_t layer, std::size_t head, bool values) const {
  const std::size_t slot = (layer * n_heads_ + head) * 2 + (values ? 1 : 0);
  return const_cast<std::byte*>(data_.data()) + slot * head_bytes();
}

}  // namespace llm
