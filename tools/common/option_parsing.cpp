#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cxxopts.hpp>
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

/// The value of an option that was given none: no argument can hold a NUL.
constexpr std::string_view kNoValue("\0", 1);

/// The table's names for cxxopts. Every value stays a text, because cxxopts reads numbers
/// otherwise than the table's rules do and cuts its lists at commas.
cxxopts::Options declare(const OptionTable& table) {
  cxxopts::Options options(table.tool());
  for (const Option& option : table.options()) {
    auto value = cxxopts::value<std::string>();
    if (!option.takes_word()) value->implicit_value(std::string(kNoValue));
    options.add_options()(fmt::format("{}", fmt::join(option.names, ",")), "", value);
  }
  return options;
}

/// A command line in words that cxxopts takes. It knows no long option after one dash and no value
/// after a short one that is more than letters and digits (`-n=5`, `-n-5`, `-p"a b"`).
struct Spelling {
  std::vector<std::string> words;
  std::vector<std::string> typed;         ///< each option in `words` as the user wrote it
  std::vector<std::string> unknown = {};  ///< as they were typed; not in `words`
  std::vector<OptionTable::WithoutEffect> without_effect = {};  ///< not in `words`
};

enum class Next { kAnything, kValue, kNothing };  // kNothing: the option is unknown

/// `--name`, `--name=V`, `-name`, `-name=V`. @param option  nullptr if the name is unknown
Next spell_long(const Option* option, std::string_view argument, Spelling& out) {
  const std::size_t equals = argument.find('=');
  if (option == nullptr) {
    out.unknown.emplace_back(argument);
    return Next::kNothing;
  }
  out.typed.emplace_back(argument.substr(0, equals));
  out.words.push_back(argument.starts_with("--") ? std::string(argument)
                                                 : fmt::format("-{}", argument));
  return !option->takes_word() || equals != std::string_view::npos ? Next::kAnything : Next::kValue;
}

/// `-i`, `-n5`, `-n=5`, `-ivvn5`: a word for each letter and one for the value.
Next spell_short(const OptionTable& table, std::string_view argument, Spelling& out) {
  for (std::size_t i = 1; i < argument.size(); ++i) {
    const Option* option = table.find(argument.substr(i, 1));
    if (option == nullptr) {
      out.unknown.emplace_back(argument);
      return Next::kNothing;
    }
    out.typed.push_back({'-', argument[i]});
    out.words.push_back(out.typed.back());
    if (!option->takes_word()) continue;
    std::string_view attached = argument.substr(i + 1);
    if (attached.empty()) return Next::kValue;
    if (attached.starts_with('=')) attached.remove_prefix(1);
    out.words.emplace_back(attached);
    break;
  }
  return Next::kAnything;
}

/// Takes an option without effect, and what belongs to it. @return whether the next word does
bool skip(const OptionTable::WithoutEffect& option, std::string_view argument,
          std::string_view next, Spelling& out) {
  const std::size_t equals = argument.find('=');
  out.without_effect.push_back(option);
  out.without_effect.back().name = argument.substr(0, equals);
  if (equals != std::string_view::npos || next.empty()) return false;
  using Operand = OptionTable::Operand;
  constexpr std::string_view kSwitches[] = {"on", "off", "auto", "0", "1"};
  const bool is_switch = std::ranges::count(kSwitches, next) > 0;
  return option.operand == Operand::kWord || (option.operand == Operand::kSwitch && is_switch);
}

/// A word without a dash after an unknown option is taken as its value.
Spelling spell(const OptionTable& table, std::span<const char* const> args) {
  Spelling out;
  Next next = Next::kAnything;
  std::size_t i = 0;
  for (; i < args.size(); ++i) {
    const std::string_view argument = args[i];
    if (next == Next::kValue || argument.size() < 2 || argument[0] != '-') {
      if (next != Next::kNothing) out.words.emplace_back(argument);
      next = Next::kAnything;
      continue;
    }
    if (argument == "--") break;
    const std::size_t dashes = argument.starts_with("--") ? 2 : 1;
    const std::string_view name = argument.substr(dashes, argument.find('=') - dashes);
    if (const auto* ignored = table.find_without_effect(name)) {
      if (skip(*ignored, argument, i + 1 < args.size() ? args[i + 1] : "", out)) ++i;
      continue;
    }
    const Option* option = name.size() == 1 ? nullptr : table.find(name);
    // "-temp" is the long option; anything else after one dash is a run of short ones.
    const bool is_long = dashes == 2 || option != nullptr || table.foreign_advice(name) != nullptr;
    next = is_long ? spell_long(option, argument, out) : spell_short(table, argument, out);
  }
  out.words.insert(out.words.end(), args.begin() + i, args.end());
  return out;
}

}  // namespace

std::string nearest_hint(std::string_view typed, const std::vector<std::string>& words,
                         std::string_view before) {
  const auto lower = [](std::string text) {
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
  };
  const std::string name = lower(std::string(typed));
  std::string nearest;
  std::size_t least = typed.size() <= 3 ? 2 : 3;  // a hint further away than this is noise
  for (const std::string& word : words) {
    const bool prefix = typed.size() >= 3 && lower(word).starts_with(name);
    const std::size_t distance = prefix ? 1 : edit_distance(name, lower(word));
    if (distance >= least) continue;
    least = distance;
    nearest = word;
  }
  return nearest.empty() ? "" : fmt::format("did you mean {}{}?", before, nearest);
}

Error OptionTable::unknown(std::string_view typed) const {
  std::string_view name = typed.substr(0, typed.find('='));
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  Error error = usage_error(shortened(typed.substr(0, typed.find('='))), "unknown option");
  if (const std::string* advice = foreign_advice(name)) {
    error.message = "unknown here";
    error.hint = *advice;
    return error;
  }
  std::vector<std::string> known;
  for (const Option& option : options_)
    for (const std::string& one : option.names)
      if (one.size() > 1) known.push_back(one);
  error.hint = nearest_hint(name, known, "--");
  if (error.hint.empty()) error.hint = fmt::format("{} --help lists them", tool_);
  return error;
}

Status OptionTable::assign(const Option& option, const std::string& typed,
                           const std::string& value) {
  if (!option.set(value)) {
    return usage_error(typed, fmt::format("found {}, need {}", quoted(value), option.rule));
  }
  given_.push_back(&option);
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
  std::vector<const Positional*> places;
  for (const Positional& positional : positionals_) {
    if (std::ranges::find(given_, positional.name, &Option::positional) == given_.end())
      places.push_back(&positional);
  }
  if (found.size() > places.size()) {
    return usage_error(quoted(found[places.size()]),
                       fmt::format("found {} arguments without a dash, need at most {}",
                                   found.size(), places.size()),
                       "put a text with spaces in quotes");
  }
  for (std::size_t i = 0; i < std::min(places.size(), found.size()); ++i) {
    const Positional& place = *places[i];
    if (!place.is_verb || std::ranges::find(place.choices, found[i]) != place.choices.end())
      continue;
    return usage_error(
        place.name,
        fmt::format("found {}, need {}", quoted(found[i]), fmt::join(place.choices, ", ")),
        nearest_hint(found[i], place.choices));
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (i < found.size()) {
      *places[i]->target = found[i];
    } else if (places[i]->required) {
      return usage_error(places[i]->name, fmt::format("found nothing, need {}", places[i]->help),
                         fmt::format("{} --help shows the usage", tool_));
    }
  }
  return Ok{};
}

Status OptionTable::parse(std::span<const char* const> args) {
  errors_ = find_errors(args);
  if (errors_.empty()) return Ok{};
  Error first = std::move(errors_.front());
  errors_.erase(errors_.begin());
  return first;
}

std::vector<Error> OptionTable::find_errors(std::span<const char* const> args) {
  given_.clear();
  Spelling spelling = spell(*this, args);
  given_without_effect_ = std::move(spelling.without_effect);
  std::vector<Error> errors;
  const auto keep = [&](const Status& status) {
    if (!status.ok()) errors.push_back(status.error());
  };
  for (const std::string& typed : spelling.unknown) errors.push_back(unknown(typed));
  std::vector<const char*> words = {tool_.c_str()};
  for (const std::string& word : spelling.words) words.push_back(word.c_str());

  cxxopts::Options options = declare(*this);
  cxxopts::ParseResult parsed;
  try {
    parsed = options.parse(static_cast<int>(words.size()), words.data());
  } catch (const cxxopts::exceptions::missing_argument&) {
    const std::string& typed = spelling.typed.back();  // nothing follows it
    const Option* option = find(std::string_view(typed).substr(typed.find_first_not_of('-')));
    errors.push_back(usage_error(typed, fmt::format("found no value, need {}", option->value)));
    return errors;
  }

  const std::vector<cxxopts::KeyValue>& found = parsed.arguments();
  LLM_CHECK(found.size() == spelling.typed.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const Option& option = *find(found[i].key());
    if (option.is_flag() && found[i].value() != kNoValue) {
      errors.push_back(usage_error(spelling.typed[i], fmt::format("found {}, need no value",
                                                                  quoted("=" + found[i].value()))));
      continue;
    }
    const bool given_none = option.value_optional && found[i].value() == kNoValue;
    keep(assign(option, spelling.typed[i], given_none ? "" : found[i].value()));
  }
  keep(parse_environment());
  // Of unknown options it is not known which words are values.
  if (spelling.unknown.empty()) keep(assign_positionals(parsed.unmatched()));
  return errors;
}

}  // namespace llm
