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

/// The help sentence with default, rule and variable after it.
std::string description(const Option& option) {
  std::string facts;
  const auto add = [&facts](const std::string& fact) {
    facts.append(facts.empty() ? "" : "; ").append(fact);
  };
  if (!option.rule.empty()) add(option.rule);
  if (!option.default_text.empty()) add(fmt::format("default {}", option.default_text));
  if (!option.env.empty()) add(fmt::format("variable {}", option.env));
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

/// Escapes what roff would take as a command.
std::string roff(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else if ((c == '.' || c == '\'') && result.empty()) {
      result.append("\\&").push_back(c);
    } else {
      result += c;
    }
  }
  return result;
}

/// Escapes what a Markdown table would take as markup.
std::string cell(std::string_view text) { return escaped(text, "|<*_\\"); }

/// The other tools' pages.
std::string see_also(std::string_view tool) {
  std::string line;
  for (const std::string_view other : {"llmbench", "llmcheck", "llmgguf", "llmload", "llmquant",
                                       "llmrun", "llmserve", "llmsynth", "llmtok"}) {
    if (other != tool) line += fmt::format("{}.BR {} (1)", line.empty() ? "" : " ,\n", other);
  }
  return line + "\n";
}

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

std::string man_page(const OptionTable& table) {
  std::string name = table.tool();
  std::ranges::transform(name, name.begin(),
                         [](char c) { return c >= 'a' && c <= 'z' ? char(c - 'a' + 'A') : c; });
  std::string page = fmt::format(
      ".TH {} 1 \"{}\" \"{} {}\" \"User commands\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n{}\n", name,
      LLM_RELEASE_DATE, table.tool(), version(), table.tool(), roff(table.summary()),
      roff(usage(table)));
  page += ".SH ARGUMENTS\n";
  for (const auto& positional : table.positionals()) {
    page += fmt::format(".TP\n{}\n{}\n", roff(positional.name), roff(positional.help));
  }
  for (const std::string& group : groups_of(table)) {
    page += fmt::format(".SH {}\n", roff(group));
    for (const Option& option : table.options()) {
      if (option.group != group) continue;
      page += fmt::format(".TP\n.B {}\n{}\n", roff(signature(option)), roff(description(option)));
    }
  }
  if (!table.examples().empty()) page += ".SH EXAMPLES\n";
  for (const auto& [command, meaning] : table.examples()) {
    page += fmt::format(".TP\n.B {}\n{}\n", roff(command), roff(meaning));
  }
  page +=
      ".SH EXIT STATUS\n0 ok, 1 a verdict failed, 2 usage, 3 malformed file, 4 I/O, 5 resources, "
      "6 valid but unsupported, 7 NaN or Inf, 8 integrity, 129, 130 and 143 interrupted.\n"
      ".SH SEE ALSO\n" +
      see_also(table.tool());
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
      std::string fallback = option.default_text;
      if (!option.env.empty()) {
        fallback += fmt::format("{}variable `{}`", fallback.empty() ? "" : "; ", option.env);
      }
      page += fmt::format("| `{}` | {} | {} | {} |\n", signature(option), cell(option.help),
                          cell(option.rule), fallback);
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
