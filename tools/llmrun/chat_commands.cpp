#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/shown_text.h"
#include "tools/common/log.h"
#include "tools/llmrun/chat.h"

namespace llm {
namespace {

struct ChatCommand {
  std::string_view name;
  std::string_view alias;     ///< what Ollama's users type, or ""
  std::string_view argument;  ///< what follows: needed, [may be left out], or "" for nothing
  std::string_view help;
  Status (*run)(Chat& chat, const std::string& argument);

  bool needs_argument() const { return !argument.empty() && argument.front() != '['; }
};

Status show_or_set_system(Chat& chat, const std::string& text) {
  if (text.empty()) {
    const std::optional<std::string>& system = chat.conversation().system();
    const std::string shown = system == "" ? "an empty system message" : system.value_or("");
    write_message(fmt::format("{}\n", system ? shown : "no system message"));
  } else {
    chat.conversation().set_system(text == "\"\"" ? "" : text);
  }
  return Ok{};
}

/// The text of every file that matches.
Status read_matching(Chat& chat, const std::string& pattern) {
  glob_t found = {};
  const int code = glob(pattern.c_str(), GLOB_MARK | GLOB_TILDE | GLOB_BRACE, nullptr, &found);
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + (code == 0 ? found.gl_pathc : 0));
  globfree(&found);
  std::erase_if(paths, [](const std::string& path) { return path.ends_with('/'); });
  if (paths.empty()) write_message(fmt::format("/glob: no file matches {}\n", shown(pattern)));
  for (const std::string& path : paths) LLM_RETURN_IF_ERROR(chat.read(path));
  return Ok{};
}

constexpr std::array<ChatCommand, 16> kCommands = {{
    {"/help", "/?", "", "this list",
     [](Chat&, const std::string&) -> Status {
       write_message(command_help());
       return Ok{};
     }},
    {"/exit", "/bye", "", "leave, as Ctrl-D does",
     [](Chat& chat, const std::string&) -> Status {
       chat.leave();
       return Ok{};
     }},
    {"/clear", "", "", "delete the conversation; keep the system message",
     [](Chat& chat, const std::string&) -> Status {
       chat.conversation().clear();
       return Ok{};
     }},
    {"/system", "", "[TEXT]", "replace the system message (\"\" for an empty one), or show it",
     show_or_set_system},
    {"/save", "", "FILE", "write conversation and cache",
     [](Chat& chat, const std::string& path) { return chat.save(path); }},
    {"/load", "", "FILE", "continue a saved conversation",
     [](Chat& chat, const std::string& path) { return chat.load(path); }},
    {"/regenerate", "", "", "answer the last message again",
     [](Chat& chat, const std::string&) { return chat.regenerate(); }},
    {"/edit", "", "TEXT", "replace the last message and answer it",
     [](Chat& chat, const std::string& text) { return chat.edit(text); }},
    {"/undo", "", "", "remove the last message and its reply",
     [](Chat& chat, const std::string&) { return chat.undo(); }},
    {"/branch", "", "[NAME]", "go on with the branch NAME, new or old, or list them",
     [](Chat& chat, const std::string& name) { return chat.branch(name); }},
    {"/read", "", "FILE", "put a text file in front of the next message",
     [](Chat& chat, const std::string& path) { return chat.read(path); }},
    {"/glob", "", "PATTERN", "the same for all files that match, as in src/*.h", read_matching},
    {"/set", "", "NAME VALUE", "change an option of generation: temp, top-k, seed, n, ...",
     [](Chat& chat, const std::string& words) { return chat.set(words); }},
    {"/show", "", "", "model, template and options of generation",
     [](Chat& chat, const std::string&) -> Status {
       chat.show();
       return Ok{};
     }},
    {"/stats", "", "", "length of the conversation, speed of the last reply",
     [](Chat& chat, const std::string&) -> Status {
       chat.print_stats();
       return Ok{};
     }},
}};

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

}  // namespace

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const ChatCommand& command : kCommands) names.emplace_back(command.name);
  return names;
}

bool is_command(const std::string& line) {
  return line.starts_with('/') && !line.starts_with("//");
}

Status run_command(Chat& chat, const std::string& line) {
  const std::size_t space = std::min(line.find_first_of(" \t\n"), line.size());
  const std::string_view name = std::string_view(line).substr(0, space);
  const std::string argument(trimmed(std::string_view(line).substr(space)));
  const auto* command = std::ranges::find_if(kCommands, [name](const ChatCommand& candidate) {
    return name == candidate.name || name == candidate.alias;
  });
  if (command == kCommands.end()) {
    write_message(fmt::format(
        "{}: no such command; the commands are {}; write // for a message that starts with /\n",
        quoted(name), fmt::join(command_names(), " ")));
  } else if (command->needs_argument() && argument.empty()) {
    write_message(fmt::format("{} needs {}\n", command->name, command->argument));
  } else if (command->argument.empty() && !argument.empty()) {
    write_message(fmt::format("{} takes nothing after it\n", command->name));
  } else {
    return command->run(chat, argument);
  }
  return Ok{};
}

std::string command_help() {
  std::string page;
  for (const ChatCommand& command : kCommands) {
    const std::string alias = command.alias.empty() ? "" : fmt::format(", {}", command.alias);
    page += fmt::format(
        "{:<16} {}\n", fmt::format("{}{} {}", command.name, alias, command.argument), command.help);
  }
  return page +
         "A line that ends with \\ continues on the next line. Text between two\nlines of \"\"\", "
         "or pasted text, is one message. Write // for a message\nthat starts with /. Ctrl-C stops "
         "a reply; at the prompt it deletes the\nline, and pressed twice it quits.\n";
}

}  // namespace llm
