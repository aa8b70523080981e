#include <fmt/format.h>

#include "tools/common/option_pages.h"

namespace llm {
namespace {

std::string joined(const std::vector<std::string>& words, std::string_view between) {
  return fmt::format("{}", fmt::join(words, between));
}

std::vector<std::string> dashed_names(const Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names) names.push_back(OptionTable::dashed(name));
  return names;
}

/// `text` in single quotes as bash and zsh read it.
std::string quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? "'\\''" : std::string(1, c);
  return result + "'";
}

/// bash has no notion of positional arguments: the script counts the words that are none of the
/// options and none of their values.
std::string bash_completion(const OptionTable& table) {
  std::string names;
  std::string values;  // what may follow an option
  std::string with_value;
  for (const Option& option : table.options()) {
    names += joined(dashed_names(option), " ") + " ";
    if (!option.takes_word()) continue;
    const std::string pattern = joined(dashed_names(option), "|");
    with_value.append(with_value.empty() ? "" : "|").append(pattern);
    if (!option.choices.empty()) {
      values += fmt::format("    {}) COMPREPLY=($(compgen -W \"{}\" -- \"$word\")); return ;;\n",
                            pattern, joined(option.choices, " "));
    } else if (option.takes_file) {
      values += fmt::format("    {}) COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n", pattern);
    } else {
      values += fmt::format("    {}) return ;;\n", pattern);
    }
  }
  std::string positions;
  std::size_t n = 0;
  for (const auto& positional : table.positionals()) {
    if (!positional.choices.empty()) {
      positions += fmt::format("    {}) COMPREPLY=($(compgen -W \"{}\" -- \"$word\")) ;;\n", n,
                               joined(positional.choices, " "));
    }
    ++n;
  }
  return fmt::format(
      "_{0}() {{\n"
      "  local word=\"${{COMP_WORDS[COMP_CWORD]}}\" before=\"${{COMP_WORDS[COMP_CWORD-1]}}\"\n"
      "  local i position=0\n"
      "  COMPREPLY=()\n"
      "  case \"$before\" in\n{1}  esac\n"
      "  if [[ $word == -* ]]; then\n"
      "    COMPREPLY=($(compgen -W \"{2}\" -- \"$word\"))\n"
      "    return\n"
      "  fi\n"
      "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
      "    case \"${{COMP_WORDS[i]}}\" in\n"
      "      {3}) ((++i)) ;;\n"
      "      -?*) ;;\n"
      "      *) ((++position)) ;;\n"
      "    esac\n"
      "  done\n"
      "  case $position in\n{4}"
      "    *) COMPREPLY=($(compgen -f -- \"$word\")) ;;\n"
      "  esac\n"
      "}}\n"
      "complete -o filenames -F _{0} {0}\n",
      table.tool(), values, names, with_value, positions);
}

/// An _arguments specification's text: colons end its parts, brackets its explanation.
std::string zsh_text(std::string_view text) { return escaped(text, ":[]\\"); }

std::string zsh_action(const std::vector<std::string>& choices, bool takes_file) {
  if (!choices.empty()) return fmt::format("({})", joined(choices, " "));
  return takes_file ? "_files" : " ";
}

std::string zsh_completion(const OptionTable& table) {
  std::string specs;
  for (const Option& option : table.options()) {
    const std::vector<std::string> names = dashed_names(option);
    for (const std::string& name : names) {
      // "*" for an option that may come again; else its other names are not offered with it.
      const std::string others = option.repeats ? "*" : fmt::format("({})", joined(names, " "));
      std::string spec = fmt::format("{}{}[{}]", others, name, zsh_text(option.help));
      if (option.takes_word()) {
        spec += fmt::format(":{}:{}", zsh_text(option.value),
                            zsh_action(option.choices, option.takes_file));
      }
      specs += fmt::format(" \\\n  {}", quoted(spec));
    }
  }
  std::size_t n = 1;
  for (const auto& positional : table.positionals()) {
    specs += fmt::format(
        " \\\n  {}", quoted(fmt::format("{}:{}{}:{}", n++, positional.required ? "" : ":",
                                        zsh_text(positional.name),
                                        zsh_action(positional.choices, positional.takes_file))));
  }
  return fmt::format(
      "#compdef {0}\n"
      "_{0}() {{\n"
      "  _arguments{1}\n"
      "}}\n"
      "if [ \"$funcstack[1]\" = _{0} ]; then _{0} \"$@\"; else compdef _{0} {0}; fi\n",
      table.tool(), specs);
}

/// fish reads a backslash in single quotes before a quote and a backslash.
std::string fish_quoted(std::string_view text) { return "'" + escaped(text, "'\\") + "'"; }

std::string fish_completion(const OptionTable& table) {
  std::string page = fmt::format("complete -c {} -f\n", table.tool());
  for (const Option& option : table.options()) {
    std::string line = fmt::format("complete -c {}", table.tool());
    for (const std::string& name : option.names) {
      line += fmt::format(" -{} {}", name.size() == 1 ? 's' : 'l', name);
    }
    if (!option.choices.empty()) {
      line += " -x -a " + fish_quoted(joined(option.choices, " "));
    } else if (option.takes_file) {
      line += " -r -F";
    } else if (!option.is_flag()) {
      line += " -x";
    }
    page += fmt::format("{} -d {}\n", line, fish_quoted(option.help));
  }
  std::string with_value;  // options whose value is no positional argument
  for (const Option& option : table.options()) {
    if (!option.is_flag()) with_value += " " + joined(dashed_names(option), " ");
  }
  page += fmt::format(
      "function __{0}_position\n"
      "  set -l words (commandline -opc)\n"
      "  set -l position 0\n"
      "  set -l skip 1\n"
      "  for word in $words\n"
      "    if test $skip = 1\n"
      "      set skip 0\n"
      "    else if contains -- $word{1}\n"
      "      set skip 1\n"
      "    else if not string match -q -- '-?*' $word\n"
      "      set position (math $position + 1)\n"
      "    end\n"
      "  end\n"
      "  test $position = $argv[1]\n"
      "end\n",
      table.tool(), with_value);
  std::size_t n = 0;
  for (const auto& positional : table.positionals()) {
    const std::string where =
        fmt::format("complete -c {0} -n '__{0}_position {1}'", table.tool(), n++);
    if (!positional.choices.empty()) {
      page += fmt::format("{} -x -a {} -d {}\n", where,
                          fish_quoted(joined(positional.choices, " ")), positional.name);
    } else if (positional.takes_file) {
      page += fmt::format("{} -F\n", where);
    }
  }
  return page;
}

}  // namespace

std::string completion(const OptionTable& table, Shell shell) {
  if (shell == Shell::kZsh) return zsh_completion(table);
  return shell == Shell::kFish ? fish_completion(table) : bash_completion(table);
}

}  // namespace llm
