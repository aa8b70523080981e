#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "base/result.h"
#include "tools/common/options.h"

namespace llm {

/// --chat-template and --chat-date.
struct ChatOptions {
  std::string chat_template = "auto";
  std::string date;
};

/// @param built_in  names of templates, for the help
void add_chat_options(OptionTable& table, ChatOptions* options, const std::string& built_in,
                      const std::string& more_help = "");

/// The date that a chat template is told: that of --chat-date, else today's in UTC where `needed`,
/// which stderr is told; else nothing.
/// Errors: kUsage for what is no date.
Result<std::optional<std::chrono::year_month_day>> chat_date(const ChatOptions& options,
                                                             bool needed, const std::string& tool,
                                                             bool quiet);

}  // namespace llm
