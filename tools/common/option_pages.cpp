#include "tools/common/option_pages.h"

#include <fmt/format.h>

#include <algorithm>

namespace llm {
namespace {

constexpr std::size_t kHelpColumn = 34;
constexpr std::size_t kPageWidth = 100;

/// The headings in the order of their first option.
std::vector<std::string> groups_of(const OptionTable& table) {
  std::vector<std::string> groups;
  for (const Option& option : table.options()) {
    if (std::ranges::find(groups, option.group) == groups.end()) groups.push_back(option.group);
  }
  return groups;
}

std::string usage(const OptionTable& table) {
  std::string line = table.tool();
  for (const auto& positional : table.positionals()) {
    line += positional.required ? fmt::format(" {}", positional.name)
                                : fmt::format(" [{}]", positional.name);
  }
  return line + " [options]";
}

/// "-n, --n-predict N".
std::string signature(const Option& option) {
  std::string text;
  for (const std::string& name : option.names) {
    if (!text.empty()) text += ", ";
    text += OptionTable::dashed(name);
  }
  if (option.value_optional) return text + fmt::format("[={}]", option.value);
  if (!option.is_flag()) text += fmt::format(" {}", option.value);
  return text;
}

/// What holds when the option is not given; empty if there is nothing to tell.
std::string fallback(const Option& option) {
  if (option.env.empty()) return option.default_text;
  return fmt::format("environment variable {}{}{}", option.env,
                     option.default_text.empty() ? "" : ", else ", option.default_text);
}

/// The help sentence with rule and default after it.
std::string description(const Option& option) {
  std::string facts;
  const auto add = [&facts](const std::string& fact) {
    facts.append(facts.empty() ? "" : "; ").append(fact);
  };
  if (!option.rule.empty()) add(option.rule);
  if (const std::string text = fallback(option); !text.empty()) add("default: " + text);
  return facts.empty() ? option.help : fmt::format("{} ({})", option.help, facts);
}

/// `text` in lines of at most `width` characters, broken at spaces.
std::vector<std::string> wrap(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  while (text.size() > width) {
    std::size_t space = text.rfind(' ', width);
    if (space == std::string_view::npos) space = text.find(' ', width);
    if (space == std::string_view::npos) break;
    lines.emplace_back(text.substr(0, space));
    text.remove_prefix(space + 1);
  }
  lines.emplace_back(text);
  return lines;
}

std::string help_row(std::string_view left, std::string_view right) {
  const std::string margin(kHelpColumn, ' ');
  std::string row = fmt::format("  {}", left);
  if (row.size() + 1 < kHelpColumn) {
    row.resize(kHelpColumn, ' ');
  } else {
    row += fmt::format("\n{}", margin);
  }
  return fmt::format("{}{}\n", row,
                     fmt::join(wrap(right, kPageWidth - kHelpColumn), fmt::format("\n{}", margin)));
}

/// Escapes what a Markdown table would take as markup.
std::string cell(std::string_view text) { return escaped(text, "|<*_\\"); }

}  // namespace

std::string escaped(std::string_view text, std::string_view characters) {
  std::string result;
  for (const char c : text) {
    if (characters.find(c) != std::string_view::npos) result += '\\';
    result += c;
  }
  return result;
}

std::string version() { return LLM_VERSION; }

std::string version_line(const OptionTable& table) {
  return fmt::format("{} {}\n", table.tool(), version());
}

std::string help_page(const OptionTable& table) {
  std::string page = fmt::format("{}.\n\nUsage: {}\n\n", table.summary(), usage(table));
  for (const auto& positional : table.positionals()) {
    page += help_row(positional.name, positional.help);
  }
  for (const std::string& group : groups_of(table)) {
    page += fmt::format("\n{}:\n", group);
    for (const Option& option : table.options()) {
      if (option.group == group) page += help_row(signature(option), description(option));
    }
  }
  if (!table.examples().empty()) page += "\nExamples:\n";
  for (const auto& [command, meaning] : table.examples()) {
    page += fmt::format("  {}\n      {}\n", command, meaning);
  }
  return page;
}

std::string markdown_page(const OptionTable& table) {
  std::string page =
      fmt::format("## {0}\n\n{1}.\n\n    {2}\n", table.tool(), table.summary(), usage(table));
  if (!table.positionals().empty()) page += "\n| argument | meaning |\n|---|---|\n";
  for (const auto& positional : table.positionals()) {
    page += fmt::format("| `{}` | {} |\n", positional.name, cell(positional.help));
  }
  for (const std::string& group : groups_of(table)) {
    page += fmt::format("\n### {}\n\n| option | meaning | values | default |\n|---|---|---|---|\n",
                        group);
    for (const Option& option : table.options()) {
      if (option.group != group) continue;
      page += fmt::format("| `{}` | {} | {} | {} |\n", signature(option), cell(option.help),
                          cell(option.rule), fallback(option));
    }
  }
  if (!table.examples().empty())
    page += "\n### Examples\n\n| command | what it does |\n|---|---|\n";
  for (const auto& [command, meaning] : table.examples()) {
    page += fmt::format("| `{}` | {} |\n", command, cell(meaning));
  }
  return page;
}

}  // namespace llm
