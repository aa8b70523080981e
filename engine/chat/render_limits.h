#pragma once

#include <chrono>
#include <functional>

#include "base/result.h"

namespace llm {

/// How long a template may take, besides the limits that every one has. Each is an Error of
/// kResource that names the line.
struct RenderLimits {
  /// Of the processor.
  std::chrono::milliseconds most_work{1500};
  /// By the clock.
  std::chrono::milliseconds most_time = std::chrono::hours(24);
  /// Asked by the thread that renders, every few hundred microseconds; true: nobody waits for it.
  std::function<bool()> is_given_up = {};
};

/// Of templates that are tried, whether anybody asks for that or not: a usual one takes a
/// hundredth.
inline RenderLimits trial_limits() { return {.most_work = std::chrono::milliseconds(250)}; }

/// Whether a template's error is that it takes too much: another trial may, too.
inline bool is_exhausting(const Error& error) {
  return error.code == ErrorCode::kResource && error.field == "chat template";
}

}  // namespace llm
