#pragma once

#include <chrono>
#include <cstddef>

namespace llm {

/// Chooses how many workers a pass of one row gets. Such a pass waits hundreds of times for its
/// last worker. On a machine that has other work to do, the system stops a worker for milliseconds
/// and all others wait for it; one worker fewer, each with a CPU of its own, is faster then. No
/// choice changes a bit (docs/numerics.md).
///
/// It tries fewer workers when some are stopped, and more from time to time, each over a short
/// window, and keeps what was faster: one at first, twice as many after each trial that changed
/// nothing, which also become rarer. A machine that stops nobody never sees one.
class TeamSize {
 public:
  using Time = std::chrono::nanoseconds;

  /// @param most  workers that were asked for
  explicit TeamSize(int most) : most_(most), settled_(most), current_(most) {}

  /// Workers of the next pass; of several rows, all.
  int workers(std::size_t n_rows) const { return n_rows == 1 ? current_ : most_; }
  /// What the pass took, and whether the system stopped one of its workers for long.
  void passed(std::size_t n_rows, Time time, bool stopped);

 private:
  /// Passes of one size, one after the other.
  struct Window {
    std::size_t n = 0;
    std::size_t n_stopped = 0;
    Time time{0};
    bool is_full() const { return n >= kLeastPasses && time >= kLeastTime; }
    double mean() const { return static_cast<double>(time.count()) / static_cast<double>(n); }
  };
  static constexpr std::size_t kLeastPasses = 4;
  static constexpr Time kLeastTime = std::chrono::milliseconds(30);  ///< several time slices
  static constexpr std::size_t kFirstPause = 8;                      ///< windows between two trials
  static constexpr std::size_t kLongestPause = 128;
  static constexpr double kGain = 0.97;  ///< of the time: less is noise

  void end_window();
  void settle(int workers);

  int most_;
  int settled_;  ///< the best so far
  int current_;  ///< settled_, or what is on trial
  Window window_;
  double settled_mean_ = 0;
  std::size_t until_trial_ = 0;  ///< windows
  std::size_t pause_ = kFirstPause;
  int step_ = 1;
};

}  // namespace llm
