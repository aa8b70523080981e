#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace llm {

/// One line on stderr for the long job at hand: bar, share, rate and time left. Draws only on a
/// terminal, at most ten times per second, never wider than the terminal is at that moment, and
/// wipes itself when the stage ends or on destruction.
/// Where stderr is no terminal it may write a line now and then instead.
/// A stage called "WHOLE: PART" is a part of a whole that `done` and `total` count, in no unit: the
/// clock runs on from part to part. Pass `std::ref(bar)` where a Progress callback is wanted.
class ProgressBar {
 public:
  /// @param enabled  false never draws (-q)
  /// @param unit  what is counted ("tokens"), for the rate; "B" gives kB/s to GB/s
  /// @param every  without a terminal, a line so often; 0: none
  explicit ProgressBar(bool enabled = true, std::string unit = "",
                       std::chrono::seconds every = std::chrono::seconds(0));
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void operator()(std::string_view stage, std::size_t done, std::size_t total);
  /// Removes the line, so that other output can follow.
  void clear();

  /// The line for `done` of `total` after `seconds`, without control characters. Where `columns`
  /// do not suffice, the bar goes first, then the rate, then the end of the stage's name.
  static std::string line(std::string_view stage, std::size_t done, std::size_t total,
                          double seconds, std::string_view unit, std::size_t columns = 120);

 private:
  using Clock = std::chrono::steady_clock;

  bool draws_;  ///< on a terminal
  bool drawn_ = false;
  std::chrono::seconds every_;  ///< 0: nothing without a terminal
  std::string unit_;
  std::string whole_;
  Clock::time_point started_;
  Clock::time_point last_drawn_;
};

}  // namespace llm
