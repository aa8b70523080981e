#include "tools/common/options.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

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

}  // namespace

std::vector<std::string> split_at_commas(std::string_view text) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t comma = text.find(',');
    parts.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

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

Option& Option::in_place_of(std::string positional_name) {
  positional = std::move(positional_name);
  return *this;
}

Option& Option::shown_default(std::string shown) {
  default_text = std::move(shown);
  return *this;
}

OptionTable::OptionTable(std::string tool, std::string summary)
    : tool_(std::move(tool)), summary_(std::move(summary)) {}

void OptionTable::foreign(std::string_view names, std::string advice) {
  for (std::string& name : split_at_commas(names)) foreign_.emplace_back(std::move(name), advice);
}

const std::string* OptionTable::foreign_advice(std::string_view name) const {
  if (find(name) != nullptr) return nullptr;
  const auto known = std::ranges::find(foreign_, name, &std::pair<std::string, std::string>::first);
  return known == foreign_.end() ? nullptr : &known->second;
}

void OptionTable::without_effect(std::string_view names, Operand operand, std::string why) {
  for (std::string& name : split_at_commas(names))
    without_effect_.push_back({std::move(name), operand, why});
}

const OptionTable::WithoutEffect* OptionTable::find_without_effect(std::string_view name) const {
  if (find(name) != nullptr) return nullptr;
  const auto known = std::ranges::find(without_effect_, name, &WithoutEffect::name);
  return known == without_effect_.end() ? nullptr : &*known;
}

void OptionTable::group(std::string heading) { group_ = std::move(heading); }

Option& OptionTable::add(std::string_view names, std::string value, std::string help) {
  Option& option = options_.emplace_back();
  option.names = split_at_commas(names);
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

Option& OptionTable::page(std::string_view names, std::function<std::string()> text,
                          std::string help) {
  Option& option = add(names, "", std::move(help));
  option.set = [](const std::string&) { return true; };
  option.page = std::move(text);
  return option;
}

std::optional<std::string> OptionTable::wanted_page() const {
  for (const Option& option : options_) {
    if (option.page && std::ranges::count(given_, &option) > 0) return option.page();
  }
  return std::nullopt;
}

Option& OptionTable::count(std::string_view names, int* target, std::string help) {
  Option& option = add(names, "", std::move(help));
  option.repeats = true;
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
  option.repeats = true;
  option.set = [target](const std::string& text) {
    target->push_back(text);
    return true;
  };
  return option;
}

Option& OptionTable::optional_text(std::string_view names, std::string value,
                                   std::optional<std::string>* target, std::string help) {
  Option& option = add(names, std::move(value), std::move(help));
  option.value_optional = true;
  option.set = [target](const std::string& text) {
    *target = text;
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

OptionTable::Positional& OptionTable::Positional::file() {
  takes_file = true;
  return *this;
}

OptionTable::Positional& OptionTable::Positional::one_of(std::vector<std::string> words) {
  choices = std::move(words);
  return *this;
}

OptionTable::Positional& OptionTable::Positional::verb(std::vector<std::string> words) {
  is_verb = true;
  return one_of(std::move(words));
}

OptionTable::Positional& OptionTable::positional(std::string name, std::string* target,
                                                 bool required, std::string help) {
  return positionals_.emplace_back(
      Positional{std::move(name), target, required, std::move(help), {}, false, false});
}

void OptionTable::example(std::string command, std::string meaning) {
  examples_.push_back({std::move(command), std::move(meaning)});
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

}  // namespace llm
