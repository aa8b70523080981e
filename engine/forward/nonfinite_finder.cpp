#include "engine/forward/nonfinite_finder.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace llm {

std::size_t first_nonfinite(std::span<const float> values) {
  constexpr std::size_t kBlock = 1024;
  // But for the sign, the bits of Inf are above those of all numbers, and NaN's above Inf's.
  constexpr std::int32_t kInf = 0x7F800000;
  for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
    const auto block = values.subspan(begin, std::min(kBlock, values.size() - begin));
    std::int32_t most = 0;
    for (const float x : block) most = std::max(most, std::bit_cast<std::int32_t>(x) & 0x7FFFFFFF);
    if (most < kInf) continue;
    const auto found = std::ranges::find_if_not(block, [](float x) { return std::isfinite(x); });
    return begin + static_cast<std::size_t>(found - block.begin());
  }
  return values.size();
}

void NonFiniteFinder::begin_step(std::span<const int>, std::size_t first_position) {
  first_position_ = first_position;
}

void NonFiniteFinder::tap(int layer, std::string_view name, std::span<float> values,
                          std::size_t features, std::size_t first_token) {
  if (!where_.empty()) return;
  const std::size_t index = first_nonfinite(values);
  if (index == values.size()) return;
  where_ = layer == kGlobal ? std::string(name) : fmt::format("blk.{}.{}", layer, name);
  position_ = first_position_ + first_token + index / features;
}

Error NonFiniteFinder::error() const {
  return Error{.code = ErrorCode::kNonFinite,
               .field = where_.empty() ? "logits" : where_,
               .message = fmt::format("found NaN or Inf at token position {}, need finite numbers",
                                      position_),
               .hint = "the weights are corrupt or too large for f32"};
}

}  // namespace llm
