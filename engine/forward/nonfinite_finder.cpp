#include "engine/forward/nonfinite_finder.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace llm {

std::size_t first_nonfinite(std::span<const float> values) {
  const auto found =
      std::find_if(values.begin(), values.end(), [](float x) { return !std::isfinite(x); });
  return static_cast<std::size_t>(found - values.begin());
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
