#include "tools/common/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "base/shown_text.h"

namespace llm {
namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_terminal(int descriptor) {
  const std::string_view term = environment("TERM");
  return isatty(descriptor) == 1 && !term.empty() && term != "dumb";
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

bool stderr_takes_color() { return stderr_is_terminal() && environment("NO_COLOR").empty(); }

bool stdout_takes_color() { return is_terminal(STDOUT_FILENO) && environment("NO_COLOR").empty(); }

void setup_log(const std::string& tool, int verbosity) {
  const auto mode = stderr_takes_color() ? spdlog::color_mode::always : spdlog::color_mode::never;
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_st>(mode);
  auto logger = std::make_shared<spdlog::logger>(tool, std::move(sink));
  constexpr int kWarn = static_cast<int>(spdlog::level::warn);
  const int level = std::clamp(kWarn - verbosity, static_cast<int>(spdlog::level::trace),
                               static_cast<int>(spdlog::level::err));
  logger->set_level(static_cast<spdlog::level::level_enum>(level));
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<ShownMessage>('*').set_pattern("%n: %^%l%$: %*");
  logger->set_formatter(std::move(formatter));
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace llm
