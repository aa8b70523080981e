#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/forward/probe.h"

namespace llm {

/// Index of the first NaN or Inf; values.size() when there is none.
std::size_t first_nonfinite(std::span<const float> values);

/// Remembers the first activation that is NaN or Inf.
class NonFiniteFinder final : public ProbeSink {
 public:
  void begin_step(std::span<const int> tokens, std::size_t first_position) override;
  void tap(int layer, std::string_view name, std::span<float> values, std::size_t features,
           std::size_t first_token) override;

  /// kNonFinite naming layer, tap and position.
  Error error() const;

 private:
  std::size_t first_position_ = 0;
  std::size_t position_ = 0;
  std::string where_;
};

}  // namespace llm
