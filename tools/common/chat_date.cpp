#include "tools/common/chat_date.h"

#include <fmt/format.h>

#include "tools/common/log.h"

namespace llm {
namespace {

using Date = std::chrono::year_month_day;

std::optional<Date> parse_date(const std::string& text) {
  constexpr std::string_view kForm = "dddd-dd-dd";
  if (text.size() != kForm.size()) return std::nullopt;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_digit = text[i] >= '0' && text[i] <= '9';
    if (kForm[i] == 'd' ? !is_digit : text[i] != '-') return std::nullopt;
  }
  const auto part = [&](std::size_t at, std::size_t n) { return std::stoi(text.substr(at, n)); };
  const Date date(std::chrono::year(part(0, 4)),
                  std::chrono::month(static_cast<unsigned>(part(5, 2))),
                  std::chrono::day(static_cast<unsigned>(part(8, 2))));
  return date.ok() ? std::optional(date) : std::nullopt;
}

}  // namespace

void add_chat_options(OptionTable& table, ChatOptions* options, const std::string& built_in,
                      const std::string& more_help) {
  table
      .file("chat-template,chat-template-file", "NAME", &options->chat_template,
            fmt::format(
                "chat template: auto (the one in the model file), {} or a file with Jinja text{}",
                built_in, more_help))
      .shown_default("auto");
  table
      .text("chat-date", "DATE", &options->date,
            "date that the chat template may insert, such as 2026-11-24")
      .shown_default("today (UTC) if the template needs a date, else none");
}

Result<std::optional<Date>> chat_date(const ChatOptions& options, bool needed,
                                      const std::string& tool, bool quiet) {
  if (!options.date.empty()) {
    const auto date = parse_date(options.date);
    if (date) return date;
    return Error{ErrorCode::kUsage, "--chat-date",
                 fmt::format("found {}, need a date such as 2026-11-24", options.date)};
  }
  if (!needed) return std::optional<Date>();
  const Date today(std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now()));
  if (!quiet) {
    write_message(
        fmt::format("{}: info: the chat template uses today's date, {:04}-{:02}-{:02}; use "
                    "--chat-date to get the same output every day\n",
                    tool, static_cast<int>(today.year()), static_cast<unsigned>(today.month()),
                    static_cast<unsigned>(today.day())));
  }
  return std::optional(today);
}

}  // namespace llm
