#include "engine/generation/embedding.h"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <string_view>

#include "base/float_environment.h"

namespace llm {

Result<Pooling> pooling_of(const HyperParameters& config) {
  // Source: enum llama_pooling_type of llama.cpp's include/llama.h.
  constexpr std::array<std::string_view, 5> kNames = {"none", "mean", "cls", "last", "rank"};
  const std::size_t type = config.pooling_type;
  if (type == 1) return Pooling::kMean;
  if (type == 0 || type == 3) return Pooling::kLast;
  return Error{.code = ErrorCode::kUsage,
               .field = config.architecture->key(config.architecture->keys.pooling),
               .message = fmt::format(
                   "found {}{}, need 0 (none), 1 (mean) or 3 (last)", type,
                   type < kNames.size() ? fmt::format(" ({})", kNames[type]) : std::string())};
}

void Embedding::add(std::span<const float> row) {
  const FloatEnvironment contract;
  if (options_.dimensions > 0) row = row.first(options_.dimensions);
  sum_.resize(row.size());
  for (std::size_t i = 0; i < row.size(); ++i) sum_[i] += static_cast<double>(row[i]);
}

std::vector<float> Embedding::result() const {
  const FloatEnvironment contract;
  double squares = 0;
  for (const double x : sum_) squares += x * x;
  const double length = squares == 0 ? 1 : std::sqrt(squares);
  std::vector<float> values;
  values.reserve(sum_.size());
  for (const double x : sum_) values.push_back(static_cast<float>(x / length));
  return values;
}

}  // namespace llm
