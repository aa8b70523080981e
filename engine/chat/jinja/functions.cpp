#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/chat/jinja/runtime.h"

namespace llm::jinja {
namespace {

constexpr std::array<std::string_view, 5> kFunctions = {"range", "dict", "namespace",
                                                        "raise_exception", "strftime_now"};
constexpr std::array<std::string_view, 12> kMonths = {
    "January", "February", "March",     "April",   "May",      "June",
    "July",    "August",   "September", "October", "November", "December"};
constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                   "Thursday", "Friday", "Saturday"};

Value range(Runtime& rt, const Args& args) {
  const auto given = rt.bind(args, {"start", "stop", "step"}, "range");
  if (!given[0]) return rt.wrong("range needs an argument");
  const Int first = rt.need_int(*given[0], "an argument of range");
  const Int start = given[1] ? first : 0;
  const Int stop = given[1] ? rt.need_int(*given[1], "an argument of range") : first;
  const Int step = given[2] ? rt.need_int(*given[2], "an argument of range") : 1;
  if (step == 0) return rt.wrong("range() arg 3 must not be zero");
  constexpr Int kMost = 100'000;  // jinja2's sandbox has the same limit
  std::vector<Value> items;
  for (Int i = start; step > 0 ? i < stop : i > stop; i += step) {
    if (Int{items.size()} == kMost) {
      return rt.fail(ErrorCode::kResource, "found a range of more than 100000 values");
    }
    items.push_back(i);
  }
  return rt.list(std::move(items));
}

/// The date's directives of strftime in the C locale; the time is midnight.
Value strftime_now(Runtime& rt, const Args& args) {
  const auto given = rt.bind(args, {"format"}, "strftime_now");
  if (!given[0]) return rt.wrong("strftime_now needs a format");
  const std::chrono::year_month_day date = *rt.date;
  const std::chrono::sys_days days(date);
  const std::string_view format = rt.need_text(*given[0], "a format").bytes();
  const int year = int{date.year()};
  const unsigned month = unsigned{date.month()};
  const unsigned day = unsigned{date.day()};
  const unsigned weekday = std::chrono::weekday(days).c_encoding();
  const auto yearday = (days - std::chrono::sys_days(date.year() / 1 / 1)).count() + 1;
  std::string out;
  for (std::size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%' || at + 1 == format.size()) {
      out += format[at];
      continue;
    }
    const bool is_short = format[++at] == '-' && at + 1 < format.size();
    const char kind = is_short ? format[++at] : format[at];
    const int width = is_short ? 1 : 2;
    switch (kind) {
      case 'Y':
        out += fmt::format("{}", year);
        break;
      case 'y':
        out += fmt::format("{:0{}}", year % 100, width);
        break;
      case 'm':
        out += fmt::format("{:0{}}", month, width);
        break;
      case 'd':
        out += fmt::format("{:0{}}", day, width);
        break;
      case 'e':
        out += fmt::format("{:2}", day);
        break;
      case 'j':
        out += fmt::format("{:0{}}", yearday, is_short ? 1 : 3);
        break;
      case 'B':
        out += kMonths[month - 1];
        break;
      case 'b':
      case 'h':
        out += kMonths[month - 1].substr(0, 3);
        break;
      case 'A':
        out += kDays[weekday];
        break;
      case 'a':
        out += kDays[weekday].substr(0, 3);
        break;
      case 'u':
        out += fmt::format("{}", weekday == 0 ? 7 : weekday);
        break;
      case 'w':
        out += fmt::format("{}", weekday);
        break;
      case 'F':
        out += fmt::format("{}-{:02}-{:02}", year, month, day);
        break;
      case 'D':
        out += fmt::format("{:02}/{:02}/{:02}", month, day, year % 100);
        break;
      case 'H':
      case 'M':
      case 'S':
        out += fmt::format("{:0{}}", 0, width);
        break;
      case 'I':
        out += "12";
        break;
      case 'p':
        out += "AM";
        break;
      case 'T':
        out += "00:00:00";
        break;
      case 'Z':
      case 'z':
        break;
      case '%':
        out += '%';
        break;
      default:
        return rt.unsupported(fmt::format("%{} in a date's format", kind));
    }
  }
  return rt.text(out, kMarkup);
}

Value make_namespace(Runtime& rt, const Args& args) {
  auto made = std::make_shared<NamespaceObject>();
  const Args unnamed{args.values, {}};
  const auto given = rt.bind(unnamed, {"mapping"}, "namespace");
  if (given[0] && given[0]->dict()) {
    for (const auto& [key, value] : given[0]->dict()->items) {
      made->items.emplace_back(rt.str(key).bytes(), value);
    }
  }
  for (const auto& [name, value] : args.named) made->items.emplace_back(name, value);
  for (const auto& [name, value] : made->items) rt.list({value});  // refuses what may not be held
  return made;
}

Value make_dict(Runtime& rt, const Args& args) {
  const Args unnamed{args.values, {}};
  const auto given = rt.bind(unnamed, {"mapping"}, "dict");
  std::vector<std::pair<Value, Value>> items;
  if (given[0] && given[0]->dict()) items = given[0]->dict()->items;
  if (given[0] && !given[0]->dict()) {
    for (const Value& pair : rt.items_of(*given[0])) {
      const std::vector<Value> two = rt.items_of(pair);
      if (two.size() != 2) return rt.wrong("found an item that is no pair, need one for a dict");
      items.emplace_back(two[0], two[1]);
    }
  }
  for (const auto& [name, value] : args.named) items.emplace_back(rt.text(name, kMarkup), value);
  return rt.unique_dict(std::move(items));
}

}  // namespace

Value find_function(const Runtime& rt, std::string_view name) {
  const auto* at = std::ranges::find(kFunctions, name);
  if (at == kFunctions.end() || (name == "strftime_now" && !rt.date)) {
    return rt.undefined(fmt::format("'{}' is undefined", name));
  }
  return Function{*at};
}

Value call_function(Runtime& rt, std::string_view name, const Args& args) {
  if (name == "range") return range(rt, args);
  if (name == "dict") return make_dict(rt, args);
  if (name == "namespace") return make_namespace(rt, args);
  if (name == "strftime_now") return strftime_now(rt, args);
  const auto given = rt.bind(args, {"message"}, name);
  return rt.fail(ErrorCode::kUsage,
                 fmt::format("the template says: {}", given[0] ? rt.str(*given[0]).bytes() : ""));
}

}  // namespace llm::jinja
