#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "tools/common/options.h"

namespace llm {
namespace {

/// Levenshtein distance.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

/// What a user typed as shown in a message: cut when it is long.
std::string shortened(std::string_view typed) {
  constexpr std::size_t kShown = 60;
  if (typed.size() <= kShown) return std::string(typed);
  return fmt::format("{}... ({} bytes)", typed.substr(0, kShown), typed.size());
}

std::string quoted(std::string_view value) { return fmt::format("\"{}\"", shortened(value)); }

}  // namespace

Error OptionTable::unknown(std::string_view typed) const {
  std::string_view name = typed.substr(0, typed.find('='));
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  std::string nearest;
  std::size_t least = name.size() <= 3 ? 2 : 3;  // a hint further away than this is noise
  for (const Option& option : options_) {
    for (const std::string& known : option.names) {
      if (known.size() == 1) continue;
      const bool prefix = name.size() >= 3 && known.starts_with(name);
      const std::size_t distance = prefix ? 1 : edit_distance(name, known);
      if (distance >= least) continue;
      least = distance;
      nearest = known;
    }
  }
  return Error{.code = ErrorCode::kUsage,
               .field = shortened(typed.substr(0, typed.find('='))),
               .message = "unknown option",
               .hint = nearest.empty() ? fmt::format("{} --help lists them", tool_)
                                       : fmt::format("did you mean {}?", dashed(nearest))};
}

Status OptionTable::assign(const Option& option, const std::string& typed,
                           const std::string& value) {
  if (!option.set(value)) {
    return Error{.code = ErrorCode::kUsage,
                 .field = typed,
                 .message = fmt::format("found {}, need {}", quoted(value), option.rule)};
  }
  given_.push_back(&option);
  return Ok{};
}

Status OptionTable::parse_option(std::span<const char* const> args, std::size_t& next) {
  const std::string_view argument = args[next++];
  const std::size_t dashes = argument.starts_with("--") ? 2 : 1;
  const std::size_t equals = argument.find('=');
  const std::string_view name = argument.substr(dashes, equals - dashes);
  const Option* option = find(name);
  // "-temp" is the long option; anything else behind one dash is a run of short ones.
  if (dashes == 1 && (option == nullptr || name.size() == 1)) return parse_short(args, --next);
  if (option == nullptr || name.size() == 1) return unknown(argument);

  const std::string typed(argument.substr(0, equals));
  if (option->is_flag()) {
    if (equals == std::string_view::npos) return assign(*option, typed, "");
    return Error{
        .code = ErrorCode::kUsage,
        .field = typed,
        .message = fmt::format("found {}, need no value", quoted(argument.substr(equals)))};
  }
  if (equals != std::string_view::npos) {
    return assign(*option, typed, std::string(argument.substr(equals + 1)));
  }
  if (next == args.size()) {
    return Error{.code = ErrorCode::kUsage,
                 .field = typed,
                 .message = fmt::format("found no value, need {}", option->value)};
  }
  return assign(*option, typed, args[next++]);
}

Status OptionTable::parse_short(std::span<const char* const> args, std::size_t& next) {
  const std::string_view argument = args[next++];
  for (std::size_t i = 1; i < argument.size(); ++i) {
    const Option* option = find(argument.substr(i, 1));
    if (option == nullptr) return unknown(argument);
    const std::string typed{'-', argument[i]};
    if (option->is_flag()) {
      LLM_RETURN_IF_ERROR(assign(*option, typed, ""));
      continue;
    }
    std::string_view attached = argument.substr(i + 1);
    if (attached.starts_with('=')) attached.remove_prefix(1);
    if (i + 1 < argument.size()) return assign(*option, typed, std::string(attached));
    if (next == args.size()) {
      return Error{.code = ErrorCode::kUsage,
                   .field = typed,
                   .message = fmt::format("found no value, need {}", option->value)};
    }
    return assign(*option, typed, args[next++]);
  }
  return Ok{};
}

Status OptionTable::parse_environment() {
  for (const Option& option : options_) {
    if (option.env.empty() || std::ranges::find(given_, &option) != given_.end()) continue;
    const char* value = std::getenv(option.env.c_str());
    if (value != nullptr && *value != '\0') {
      LLM_RETURN_IF_ERROR(assign(option, "$" + option.env, value));
    }
  }
  return Ok{};
}

Status OptionTable::assign_positionals(const std::vector<std::string>& found) {
  if (found.size() > positionals_.size()) {
    return Error{.code = ErrorCode::kUsage,
                 .field = quoted(found[positionals_.size()]),
                 .message = fmt::format("found {} arguments without a dash, need at most {}",
                                        found.size(), positionals_.size()),
                 .hint = "put a text with spaces in quotes"};
  }
  for (std::size_t i = 0; i < positionals_.size(); ++i) {
    if (i < found.size()) {
      *positionals_[i].target = found[i];
    } else if (positionals_[i].required) {
      return Error{.code = ErrorCode::kUsage,
                   .field = positionals_[i].name,
                   .message = fmt::format("found nothing, need {}", positionals_[i].help),
                   .hint = fmt::format("{} --help shows the usage", tool_)};
    }
  }
  return Ok{};
}

Status OptionTable::parse(std::span<const char* const> args) {
  given_.clear();
  std::vector<std::string> rest;
  std::size_t next = 0;
  while (next < args.size()) {
    const std::string_view argument = args[next];
    if (argument == "--") {
      rest.insert(rest.end(), args.begin() + next + 1, args.end());
      break;
    }
    if (argument.size() >= 2 && argument[0] == '-') {
      LLM_RETURN_IF_ERROR(parse_option(args, next));
    } else {
      rest.emplace_back(args[next++]);
    }
  }
  LLM_RETURN_IF_ERROR(parse_environment());
  return assign_positionals(rest);
}

}  // namespace llm
