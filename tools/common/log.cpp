#include "tools/common/log.h"

#include <fmt/core.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include "base/shown_text.h"

namespace llm {
namespace {

Color wanted_color = Color::kAuto;

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_terminal(int descriptor) {
  const std::string_view term = environment("TERM");
  return isatty(descriptor) == 1 && !term.empty() && term != "dumb";
}

bool takes_color(int descriptor) {
  if (wanted_color != Color::kAuto) return wanted_color == Color::kAlways;
  return is_terminal(descriptor) && environment("NO_COLOR").empty();
}

/// The message as one clean line, whatever names from files it holds.
class ShownMessage : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    constexpr std::size_t kLongBytes = 1000;
    const std::string text = shown({message.payload.data(), message.payload.size()}, kLongBytes);
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::custom_flag_formatter> clone() const override {
    return std::make_unique<ShownMessage>();
  }
};

}  // namespace

bool stderr_is_terminal() { return is_terminal(STDERR_FILENO); }

bool stderr_takes_color() { return takes_color(STDERR_FILENO); }

bool stdout_takes_color() { return takes_color(STDOUT_FILENO); }

void setup_log(const std::string& tool, int verbosity, Color color) {
  wanted_color = color;
  const auto mode = stderr_takes_color() ? spdlog::color_mode::always : spdlog::color_mode::never;
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(mode);
  auto logger = std::make_shared<spdlog::logger>(tool, std::move(sink));
  constexpr int kWarn = static_cast<int>(spdlog::level::warn);
  const int level = std::clamp(kWarn - verbosity, static_cast<int>(spdlog::level::trace),
                               static_cast<int>(spdlog::level::err));
  logger->set_level(static_cast<spdlog::level::level_enum>(level));
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<ShownMessage>('*').set_pattern("%n: %^%l%$: %*");
  logger->set_formatter(std::move(formatter));
  logger->set_error_handler([](const std::string&) {});
  spdlog::set_default_logger(std::move(logger));
}

void write_message(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t count = write(STDERR_FILENO, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

void write_error(std::string_view tool, std::string_view text) noexcept {
  const bool color = stderr_takes_color();
  try {  // in one write, so that lines of several programs do not mix
    write_message(fmt::format("{}: {}error{}: {}\n", tool, color ? "\x1b[31m\x1b[1m" : "",
                              color ? "\x1b[m" : "", text));
  } catch (...) {
    for (const std::string_view part : {tool, std::string_view(": error: "), text}) {
      write_message(part);
    }
    write_message("\n");
  }
}

}  // namespace llm
