#include "tools/common/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "base/shown_text.h"
#include "tools/common/log.h"

namespace llm {
namespace {

constexpr std::size_t kBarWidth = 24;
constexpr std::size_t kNameBytes = 40;
constexpr std::chrono::milliseconds kRedrawInterval{100};

std::string duration(double seconds) {
  if (seconds < 60) return fmt::format("{:.0f} s", seconds);
  const auto whole = static_cast<long long>(std::min(seconds, 1e9));
  return fmt::format("{}:{:02} min", whole / 60, whole % 60);
}

std::string rate_of(double rate, std::string_view unit) {
  if (unit != "B") return fmt::format("{:.1f} {}/s", rate, unit);
  std::string_view prefix = "";
  for (const std::string_view next : {"k", "M", "G"}) {
    if (rate < 1000) break;
    rate /= 1000;
    prefix = next;
  }
  return fmt::format("{:.1f} {}B/s", rate, prefix);
}

/// `name` and `rest`, cut to `columns`: the name first.
std::string fitted(const std::string& name, const std::string& rest, std::size_t columns) {
  const std::size_t kept = columns > rest.size() ? columns - rest.size() : 0;
  return (name.substr(0, kept) + rest).substr(0, columns);
}

/// Columns that a line may take; the last one would make some terminals wrap.
std::size_t terminal_columns() {
  constexpr std::size_t kUsual = 80;
  struct winsize size = {};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return (known ? size.ws_col : kUsual) - 1;
}

}  // namespace

ProgressBar::ProgressBar(bool enabled, std::string unit, std::chrono::seconds every)
    : draws_(enabled && stderr_is_terminal()),
      every_(enabled && !draws_ ? every : std::chrono::seconds(0)),
      unit_(std::move(unit)) {}

ProgressBar::~ProgressBar() { clear(); }

std::string ProgressBar::line(std::string_view stage, std::size_t done, std::size_t total,
                              double seconds, std::string_view unit, std::size_t columns) {
  const std::string name = shown(stage, kNameBytes);
  if (total == 0) return fitted(fmt::format("{} {}", name, done), "", columns);
  const double share = static_cast<double>(std::min(done, total)) / static_cast<double>(total);
  const auto filled = static_cast<std::size_t>(share * kBarWidth);
  const std::string bar =
      fmt::format(" [{}{}]", std::string(filled, '#'), std::string(kBarWidth - filled, '.'));
  const std::string percent = fmt::format(" {:3.0f}%", share * 100);
  std::string rate_text;
  std::string left;
  if (done > 0 && seconds > 0) {
    const double rate = static_cast<double>(done) / seconds;
    if (!unit.empty()) rate_text = ", " + rate_of(rate, unit);
    if (done < total)
      left = fmt::format(", {} left", duration(static_cast<double>(total - done) / rate));
  }
  for (const std::string& rest : {bar + percent + rate_text + left, percent + rate_text + left})
    if (name.size() + rest.size() <= columns) return name + rest;
  return fitted(name, percent + left, columns);
}

void ProgressBar::operator()(std::string_view stage, std::size_t done, std::size_t total) {
  if (!draws_ && every_.count() == 0) return;
  const auto now = Clock::now();
  const auto whole = stage.substr(0, stage.find(": "));
  if (whole != whole_) {
    clear();
    whole_ = whole;
    started_ = now;
    last_drawn_ = now;  // what is shorter than the interval is never seen
  }
  if (done >= total) return clear();
  const auto interval = draws_ ? Clock::duration(kRedrawInterval) : Clock::duration(every_);
  if (now - last_drawn_ < interval) return;
  last_drawn_ = now;
  const double seconds = std::chrono::duration<double>(now - started_).count();
  const std::string unit = whole.size() == stage.size() ? unit_ : "";
  if (!draws_) return write_message(line(stage, done, total, seconds, unit) + "\n");
  write_message("\r" + line(stage, done, total, seconds, unit, terminal_columns()) + "\x1b[K");
  drawn_ = true;
}

void ProgressBar::clear() {
  if (drawn_) write_message("\r\x1b[K");
  drawn_ = false;
}

}  // namespace llm
