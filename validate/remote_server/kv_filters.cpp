#include "validate/remote_server/kv_filters.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace llm {
namespace {

constexpr std::size_t kBlock = 32;
constexpr std::size_t kRotated = 64;

/// In place; its own inverse.
void rotate(std::span<float> x) {
  for (std::size_t half = 1; half < x.size(); half *= 2) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      if ((i & half) != 0) continue;
      const float a = x[i];
      const float b = x[i + half];
      x[i] = a + b;
      x[i + half] = a - b;
    }
  }
  const float norm = 1 / std::sqrt(static_cast<float>(x.size()));
  for (float& value : x) value *= norm;
}

/// To codes of that many bits, and back. Of 4 and 5 bits the value of largest size has the lowest
/// code, -2^(bits - 1); of 8 the codes are symmetric.
void round_block(std::span<float> x, int bits) {
  const float largest =
      *std::ranges::max_element(x, {}, [](float value) { return std::fabs(value); });
  if (largest == 0) return;
  const auto levels = static_cast<float>(1 << (bits - 1));
  const float scale = bits == 8 ? std::fabs(largest) / (levels - 1) : largest / -levels;
  for (float& value : x)
    value = scale * std::clamp(std::nearbyint(value / scale), -levels, levels - 1);
}

template <int kBits, bool kIsRotated>
void filter(std::span<float> heads, std::size_t head_dim) {
  for (std::size_t head = 0; head < heads.size(); head += head_dim) {
    const std::span<float> row = heads.subspan(head, head_dim);
    const bool turns = kIsRotated && head_dim % kRotated == 0;
    for (std::size_t i = 0; turns && i < head_dim; i += kRotated) rotate(row.subspan(i, kRotated));
    for (std::size_t i = 0; i < head_dim; i += kBlock)
      round_block(row.subspan(i, std::min(kBlock, head_dim - i)), kBits);
    for (std::size_t i = 0; turns && i < head_dim; i += kRotated) rotate(row.subspan(i, kRotated));
  }
}

}  // namespace

void round_to_bf16(std::span<float> heads, std::size_t /*head_dim*/) {
  for (float& value : heads) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    value = std::bit_cast<float>((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000);
  }
}

const std::array<KvFilterRow, 6> kKvFilters = {{{"q4_0", filter<4, false>},
                                                {"q4_0 of rotated heads", filter<4, true>},
                                                {"q5_0", filter<5, false>},
                                                {"q5_0 of rotated heads", filter<5, true>},
                                                {"q8_0", filter<8, false>},
                                                {"q8_0 of rotated heads", filter<8, true>}}};

}  // namespace llm
