#include "engine/forward/team_size.h"

#include <algorithm>

namespace llm {

void TeamSize::passed(std::size_t n_rows, Time time, bool stopped) {
  if (n_rows != 1 || most_ == 1) return;
  ++window_.n;
  window_.n_stopped += stopped ? 1 : 0;
  window_.time += time;
  if (window_.is_full()) end_window();
}

void TeamSize::end_window() {
  const Window window = window_;
  window_ = {};
  if (current_ != settled_) {
    const bool faster = window.mean() < settled_mean_ * kGain;
    // More workers are what was asked for: as fast is enough.
    const bool as_fast = current_ > settled_ && window.mean() < settled_mean_ / kGain;
    settle(faster || as_fast ? current_ : settled_);
    return;
  }
  settled_mean_ = window.mean();
  if (until_trial_ > 0) {
    --until_trial_;
    return;
  }
  const bool crowded = window.n_stopped * 3 >= window.n;
  if (crowded && settled_ > 1) {
    current_ = std::max(settled_ - step_, 1);
  } else if (settled_ < most_) {
    current_ = std::min(settled_ + step_, most_);
  }
}

void TeamSize::settle(int workers) {
  const bool changed = workers != settled_;
  pause_ = changed ? kFirstPause : std::min(pause_ * 2, kLongestPause);
  step_ = changed || step_ >= most_ ? 1 : step_ * 2;
  // After a step down, another may follow at once.
  until_trial_ = workers < settled_ ? 0 : pause_;
  settled_ = current_ = workers;
}

}  // namespace llm
