#include "tools/common/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <numeric>

namespace llm {
namespace {

template <typename T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

std::vector<std::string> split_names(std::string_view names) {
  std::vector<std::string> result;
  while (true) {
    const std::size_t comma = names.find(',');
    result.emplace_back(names.substr(0, comma));
    if (comma == std::string_view::npos) return result;
    names.remove_prefix(comma + 1);
  }
}

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

std::optional<std::int64_t> parse_integer(std::string_view text) {
  return parse_number<std::int64_t>(text);
}

std::optional<double> parse_real(std::string_view text) { return parse_number<double>(text); }

Option& Option::from_env(std::string variable) {
  env = std::move(variable);
  return *this;
}

Option& Option::file() {
  takes_file = true;
  return *this;
}

Option& Option::shown_default(std::string shown) {
  default_text = std::move(shown);
  return *this;
}

OptionTable::OptionTable(std::string tool, std::string summary)
    : tool_(std::move(tool)), summary_(std::move(summary)) {}

void OptionTable::group(std::string heading) { group_ = std::move(heading); }

Option& OptionTable::add(std::string_view names, std::string value, std::string help) {
  Option& option = options_.emplace_back();
  option.names = split_names(names);
  option.value = std::move(value);
  option.help = std::move(help);
  option.group = group_;
  for (const std::string& name : option.names) LLM_CHECK(find(name) == &option);  // no name twice
  return option;
}

Option& OptionTable::flag(std::string_view names, bool* target, std::string help) {
  Option& option = add(names, "", std::move(help));
  option.set = [target](const std::string&) { return *target = true; };
  return option;
}

Option& OptionTable::count(std::string_view names, int* target, std::string help) {
  Option& option = add(names, "", std::move(help));
  option.set = [target](const std::string&) { return ++*target > 0; };
  return option;
}

Option& OptionTable::text(std::string_view names, std::string value, std::string* target,
                          std::string help) {
  Option& option = add(names, std::move(value), std::move(help));
  option.default_text = *target;
  option.set = [target](const std::string& text) {
    *target = text;
    return true;
  };
  return option;
}

Option& OptionTable::texts(std::string_view names, std::string value,
                           std::vector<std::string>* target, std::string help) {
  Option& option = add(names, std::move(value), std::move(help));
  option.set = [target](const std::string& text) {
    target->push_back(text);
    return true;
  };
  return option;
}

Option& OptionTable::real(std::string_view names, std::string value, float* target, double lowest,
                          double highest, std::string help) {
  Option& option = add(names, std::move(value), std::move(help));
  option.default_text = fmt::format("{}", *target);
  option.rule = fmt::format("{}..{}", lowest, highest);
  option.set = [target, lowest, highest](const std::string& text) {
    const auto number = parse_real(text);
    if (!number || !(*number >= lowest && *number <= highest)) return false;  // NaN fails too
    *target = static_cast<float>(*number);
    return true;
  };
  return option;
}

Option& OptionTable::integer_with(std::string_view names, std::string value, std::int64_t initial,
                                  std::function<void(std::int64_t)> store, std::int64_t lowest,
                                  std::int64_t highest, std::string help) {
  Option& option = add(names, std::move(value), std::move(help));
  option.default_text = fmt::format("{}", initial);
  option.rule = fmt::format("an integer in {}..{}", lowest, highest);
  option.set = [store = std::move(store), lowest, highest](const std::string& text) {
    const auto number = parse_integer(text);
    if (!number || *number < lowest || *number > highest) return false;
    store(*number);
    return true;
  };
  return option;
}

Option& OptionTable::choice_with(std::string_view names, std::string value,
                                 std::vector<std::string> allowed, std::string shown,
                                 std::function<bool(const std::string&)> set, std::string help) {
  Option& option = add(names, std::move(value), std::move(help));
  option.default_text = std::move(shown);
  for (std::size_t i = 0; i < allowed.size(); ++i) {
    if (i > 0) option.rule += i + 1 == allowed.size() ? " or " : ", ";
    option.rule += allowed[i];
  }
  option.choices = std::move(allowed);
  option.set = std::move(set);
  return option;
}

void OptionTable::positional(std::string name, std::string* target, bool required,
                             std::string help) {
  positionals_.push_back({std::move(name), target, required, std::move(help)});
}

std::string OptionTable::dashed(std::string_view name) {
  return fmt::format("{}{}", name.size() == 1 ? "-" : "--", name);
}

const Option* OptionTable::find(std::string_view name) const {
  for (const Option& option : options_) {
    if (std::ranges::find(option.names, name) != option.names.end()) return &option;
  }
  return nullptr;
}

bool OptionTable::given(std::string_view name) const {
  return std::ranges::find(given_, find(name)) != given_.end();
}

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
