#include "tools/common/progress.h"

#include <fmt/core.h>

#include <algorithm>

#include "tools/common/log.h"

namespace llm {
namespace {

constexpr std::size_t kBarWidth = 24;
constexpr std::chrono::milliseconds kRedrawInterval{100};

std::string duration(double seconds) {
  if (seconds < 60) return fmt::format("{:.0f} s", seconds);
  const auto whole = static_cast<long long>(std::min(seconds, 1e9));
  return fmt::format("{}:{:02} min", whole / 60, whole % 60);
}

}  // namespace

ProgressBar::ProgressBar(bool enabled, std::string unit)
    : enabled_(enabled && stderr_is_terminal()), unit_(std::move(unit)) {}

ProgressBar::~ProgressBar() { clear(); }

std::string ProgressBar::line(std::string_view stage, std::size_t done, std::size_t total,
                              double seconds, std::string_view unit) {
  if (total == 0) return fmt::format("{} {}", stage, done);
  const double share = static_cast<double>(std::min(done, total)) / static_cast<double>(total);
  const auto filled = static_cast<std::size_t>(share * kBarWidth);
  std::string text = fmt::format("{} [{}{}] {:3.0f}%", stage, std::string(filled, '#'),
                                 std::string(kBarWidth - filled, '.'), share * 100);
  if (done == 0 || seconds <= 0) return text;
  const double rate = static_cast<double>(done) / seconds;
  if (!unit.empty()) text += fmt::format(", {:.1f} {}/s", rate, unit);
  if (done < total) text += ", " + duration(static_cast<double>(total - done) / rate) + " left";
  return text;
}

void ProgressBar::operator()(std::string_view stage, std::size_t done, std::size_t total) {
  if (!enabled_) return;
  const auto now = Clock::now();
  if (stage != stage_) {
    clear();
    stage_ = stage;
    started_ = now;
    last_drawn_ = now;  // a stage shorter than the interval is never seen
  }
  if (done >= total) return clear();
  if (now - last_drawn_ < kRedrawInterval) return;
  last_drawn_ = now;
  drawn_ = true;
  const double seconds = std::chrono::duration<double>(now - started_).count();
  write_message(fmt::format("\r{}\x1b[K", line(stage, done, total, seconds, unit_)));
}

void ProgressBar::clear() {
  if (drawn_) write_message("\r\x1b[K");
  drawn_ = false;
}

}  // namespace llm
