#include <fmt/chrono.h>

#include <algorithm>
#include <array>

#include "base/shown_text.h"
#include "engine/chat/jinja/runtime.h"

namespace llm::jinja {
namespace {

constexpr std::array<std::string_view, 5> kFunctions = {"range", "dict", "namespace",
                                                        "raise_exception", "strftime_now"};

Value range(Runtime& rt, const Args& args) {
  const auto given = rt.bind(args, {"start", "stop", "step"}, "range");
  if (!given[0]) return rt.wrong("range needs an argument");
  const Int first = rt.need_int(*given[0], "an argument of range");
  const Int start = given[1] ? first : 0;
  const Int stop = given[1] ? rt.need_int(*given[1], "an argument of range") : first;
  const Int step = given[2] ? rt.need_int(*given[2], "an argument of range") : 1;
  if (step == 0) return rt.wrong("range() arg 3 must not be zero");
  constexpr Int kMost = 100'000;  // jinja2's sandbox has the same limit
  Values items;
  for (Int i = start; step > 0 ? i < stop : i > stop; i += step) {
    if (Int{items.size()} == kMost) {
      return rt.fail(ErrorCode::kResource, "found a range of more than 100000 values");
    }
    touch(16);
    items.push_back(i);
  }
  return rt.list(std::move(items));
}

/// A date by one directive of strftime in the C locale, at midnight.
/// @param is_short  without leading zeros, where the directive writes any
std::string date_part(const std::tm& date, char directive, bool is_short) {
  if (directive == 'Y') return std::to_string(date.tm_year + 1900);
  if (directive == 'F') return date_part(date, 'Y', false) + fmt::format("-{:%m-%d}", date);
  if (directive == 'Z' || directive == 'z') return "";  // a time without a zone
  if (directive == '%') return "%";
  std::string text = fmt::format(fmt::runtime(fmt::format("{{:%{}}}", directive)), date);
  if (is_short && std::string_view("ymdjHMS").find(directive) != Text::kNone)
    text.erase(0, std::min(text.find_first_not_of('0'), text.size() - 1));
  return text;
}

Value strftime_now(Runtime& rt, const Args& args) {
  const auto given = rt.bind(args, {"format"}, "strftime_now");
  if (!given[0]) return rt.wrong("strftime_now needs a format");
  const std::tm date = fmt::gmtime(std::chrono::sys_days(*rt.date));
  const std::string_view format = rt.need_text(*given[0], "a format").bytes();
  Text out;
  for (std::size_t at = 0; at < format.size() && !out.is_too_long(); ++at) {
    if (format[at] != '%' || at + 1 == format.size()) {
      out.append(format.substr(at, 1), kMarkup);
      continue;
    }
    charge(8);
    const bool is_short = format[++at] == '-' && at + 1 < format.size();
    const char directive = is_short ? format[++at] : format[at];
    if (std::string_view("YymdejBbhAauwFDHMSIpTZz%").find(directive) == Text::kNone)
      return rt.unsupported(fmt::format("%{} in a date's format", directive));
    out.append(date_part(date, directive, is_short), kMarkup);
  }
  return rt.text(std::move(out));
}

Value make_namespace(Runtime& rt, const Args& args) {
  NamespaceObject made;
  std::size_t depth = 0;
  const auto hold = [&](std::string_view name, const Value& value) {
    if (rt.may_hold(value, depth)) made.items.set(String(name), value);
  };
  const Args unnamed{args.values, {}};
  const auto given = rt.bind(unnamed, {"mapping"}, "namespace");
  if (given[0] && given[0]->dict()) {
    for (const auto& [key, value] : given[0]->dict()->items) hold(rt.str(key).bytes(), value);
  }
  for (const auto& [name, value] : args.named) hold(name, value);
  return make_counted(std::move(made));
}

Value make_dict(Runtime& rt, const Args& args) {
  const Args unnamed{args.values, {}};
  const auto given = rt.bind(unnamed, {"mapping"}, "dict");
  DictObject made;
  if (given[0] && given[0]->dict()) {
    touch(64 * given[0]->dict()->items.size());
    made = *given[0]->dict();
  } else if (given[0]) {
    for (const Value& pair : rt.items_of(*given[0])) {
      const Values two = rt.items_of(pair);
      if (two.size() != 2)
        return rt.wrong("found an item that is not a pair, need pairs for a dict");
      rt.add(made, two[0], two[1]);
    }
  }
  for (const auto& [name, value] : args.named) rt.add(made, rt.text(name, kMarkup), value);
  return rt.failed() ? Value() : rt.dict(std::move(made));
}

}  // namespace

Value find_function(const Runtime& rt, std::string_view name) {
  const auto* at = std::ranges::find(kFunctions, name);
  if (at == kFunctions.end() || (name == "strftime_now" && !rt.date)) {
    return rt.undefined(fmt::format("'{}' is undefined", name.substr(0, kLineBytes)));
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
