#pragma once

#include <optional>
#include <string_view>

#include "quant/kernels/kv_layout.h"

namespace llm {

/// How matrix products are computed (docs/numerics.md).
enum class Compute {
  kInt8,  ///< activations quantized to int8 blocks; integer sums
  kF32,   ///< weights dequantized, activations f32
};

/// Every type of cache, the default first.
inline constexpr KvType kKvTypes[] = {KvType::kF16, KvType::kF32, KvType::kQ8};

/// As options, files and reports spell it.
constexpr std::string_view kv_name(KvType type) {
  switch (type) {
    case KvType::kF16:
      return "f16";
    case KvType::kF32:
      return "f32";
    case KvType::kQ8:
      break;
  }
  return "q8";
}
constexpr std::optional<KvType> kv_from_name(std::string_view name) {
  for (const KvType type : kKvTypes)
    if (name == kv_name(type)) return type;
  return std::nullopt;
}

/// The cache that goes with a compute mode where none is asked for: as exact as the products.
constexpr KvType usual_kv(Compute compute) {
  return compute == Compute::kF32 ? KvType::kF32 : KvType::kF16;
}

}  // namespace llm
