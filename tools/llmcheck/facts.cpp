#include "tools/llmcheck/facts.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <ctime>
#include <string_view>

#include "base/cpu_features.h"
#include "base/thread_team.h"
#include "tools/common/option_pages.h"

namespace llm {
namespace {

/// A word as a shell reads it, in single quotes where it must be.
std::string shell_word(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,@%+";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos)
    return std::string(word);
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string command_line(std::span<const char* const> words) {
  std::string line;
  for (const char* word : words) line += (line.empty() ? "" : " ") + shell_word(word);
  return line;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> run_facts(const CheckArguments& arguments,
                                                           std::span<const char* const> command,
                                                           const std::string& path,
                                                           const std::string& sha256) {
  const int threads = arguments.threads > 0 ? arguments.threads : available_cpus();
  return {{"llmcheck", version()},
          {"date", fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(std::time(nullptr)))},
          {"command", command_line(command)},
          {"model", path},
          {"sha256", sha256},
          {"CPU", std::string(cpu_name())},
          {"isa", std::string(isa_name(arguments.isa.value_or(best_isa())))},
          {"threads", fmt::format("{}", threads)}};
}

}  // namespace llm
