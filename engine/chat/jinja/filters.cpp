#include "engine/chat/jinja/filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "base/shown_text.h"

namespace llm::jinja {
namespace {

using R = Runtime&;
using V = const Value&;
using A = const Args&;

Value replace(R rt, V in, A args) {
  const auto given = rt.bind(args, {"old", "new", "count"}, "replace");
  if (!given[0] || !given[1]) return rt.wrong("replace needs two arguments");
  const Int most = given[2] && !given[2]->is<None>() ? rt.need_int(*given[2], "a count") : -1;
  const Text text = rt.str(in);
  return rt.text(replaced(text, rt.str(*given[0]), rt.str(*given[1]),
                          most < 0 ? Text::kNone : static_cast<std::size_t>(most)));
}

Value indent(R rt, V in, A args) {
  const auto given = rt.bind(args, {"width", "first", "blank"}, "indent");
  Text with(std::string(4, ' '), kMarkup);
  if (given[0] && given[0]->text()) {
    with = *given[0]->text();
  } else if (given[0]) {
    const Int width = std::clamp(rt.need_int(*given[0], "a width"), Int{0}, Int{1000});
    with = Text(std::string(static_cast<std::size_t>(width), ' '), kMarkup);
  }
  // One more break, so that one at the end gives an empty last line; that break goes again.
  const Text& text = rt.need_text(in, "what is indented");
  const Texts lines = split(text, "\n", Text::kNone, false);
  Text out;
  for (std::size_t i = 0; i < lines.size() && !out.is_too_long(); ++i) {
    if (i > 0) out.append("\n", kMarkup);
    const bool is_indented = i == 0 ? is_set(given[1]) : is_set(given[2]) || !lines[i].empty();
    if (is_indented) out.append(with);
    out.append(lines[i]);
  }
  return rt.text(std::move(out));
}

Value to_json(R rt, V in, A args) {
  const auto given = rt.bind(args, {"ensure_ascii", "indent", "separators", "sort_keys"}, "tojson");
  JsonStyle style{.ascii = is_set(given[0]), .sort_keys = is_set(given[3])};
  if (given[1] && !given[1]->is<None>()) {
    style.comma = ",";
    const Int width = given[1]->text() ? 0 : rt.need_int(*given[1], "indent");
    style.indent =
        given[1]->text()
            ? std::string(given[1]->text()->bytes())
            : std::string(static_cast<std::size_t>(std::clamp(width, Int{0}, Int{1000})), ' ');
  }
  if (given[2] && !given[2]->is<None>()) {
    const Values two = rt.items_of(*given[2]);
    if (two.size() != 2) return rt.wrong("separators needs two texts");
    style.comma = rt.need_text(two[0], "a separator").bytes();
    style.colon = rt.need_text(two[1], "a separator").bytes();
  }
  Text out;
  append_json(rt, in, style, out);
  return rt.text(std::move(out));
}

Value default_value(R rt, V in, A args) {
  const auto given = rt.bind(args, {"default_value", "boolean"}, "default");
  const bool is_missing = in.is<Undefined>() || (is_set(given[1]) && !is_true(in));
  if (!is_missing) return in;
  return given[0] ? *given[0] : rt.text("", kMarkup);
}

/// The number that a text spells for int() or float(), blanks around it; nothing if none.
template <typename T>
std::optional<T> number_in(std::string_view text, int base) {
  touch(2 * text.size());
  const Stripped left = strip(text, true, true);
  text = text.substr(left.begin, left.end - left.begin);
  if (text.starts_with('+')) text.remove_prefix(1);
  T value{};
  std::from_chars_result read{};
  if constexpr (std::is_same_v<T, double>) {
    read = std::from_chars(text.data(), text.data() + text.size(), value);
  } else {
    read = std::from_chars(text.data(), text.data() + text.size(), value, base);
  }
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

Value to_int(R rt, V in, A args) {
  const auto given = rt.bind(args, {"default", "base"}, "int");
  if (!rt.is_there(in)) return Undefined{};
  const Value missing = given[0] ? *given[0] : Value(Int{0});
  if (in.integer()) return *in.integer();
  if (const auto* d = in.get<double>()) {
    return std::abs(*d) < 1e38 ? Value(static_cast<Int>(*d)) : missing;
  }
  if (!in.text()) return missing;
  const Int base = given[1] ? rt.need_int(*given[1], "a base") : 10;
  if (base < 2 || base > 36) return rt.wrong("found a base outside 2..36");
  const std::string_view text = in.text()->bytes();
  if (const auto i = number_in<std::int64_t>(text, static_cast<int>(base))) return Int{*i};
  const auto d = number_in<double>(text, 10);
  return d && std::abs(*d) < 1e38 ? Value(static_cast<Int>(*d)) : missing;
}

Value to_float(R rt, V in, A args) {
  const auto given = rt.bind(args, {"default"}, "float");
  if (!rt.is_there(in)) return Undefined{};
  if (in.is_number()) return in.number();
  const auto d = in.text() ? number_in<double>(in.text()->bytes(), 10) : std::nullopt;
  if (d) return *d;
  return given[0] ? *given[0] : Value(0.0);
}

Value round_number(R rt, V in, A args) {
  const auto given = rt.bind(args, {"precision", "method"}, "round");
  if (!in.is_number()) return rt.wrong(fmt::format("found a {} to round", type_name(in)));
  const Int precision = given[0] ? rt.need_int(*given[0], "a precision") : 0;
  const std::string_view method =
      given[1] ? rt.need_text(*given[1], "a method").bytes() : std::string_view("common");
  if (precision < 0 || precision > 15) return rt.unsupported("a precision outside 0..15");
  const int digits = static_cast<int>(precision);
  double scale = 1;  // exact up to 10^22
  for (int i = 0; i < digits; ++i) scale *= 10;
  const double x = in.number();
  if (method == "ceil") return std::ceil(x * scale) / scale;
  if (method == "floor") return std::floor(x * scale) / scale;
  if (in.integer()) return *in.integer();
  // As Python: to the decimal that the exact binary value is nearest to, ties to even.
  const std::string text = fmt::format("{:.{}f}", x, digits);
  return number_in<double>(text, 10).value_or(x);
}

Value absolute(R rt, V in, A) {
  if (const auto i = in.integer()) return *i < 0 ? -*i : *i;
  if (in.is<double>()) return std::abs(in.number());
  return rt.wrong(fmt::format("bad operand type for abs(): '{}'", type_name(in)));
}

template <Case kCase>
Value cased(R rt, V in, A) {
  return rt.text(with_case(rt.str(in), kCase));
}

Value format(R rt, V in, A args) {
  Values values = args.values;
  return format_percent(rt, rt.str(in), rt.list(std::move(values), true));
}

Value center(R rt, V in, A args) {
  const auto given = rt.bind(args, {"width"}, "center");
  Args with;
  with.values.push_back(given[0] ? *given[0] : Value(Int{80}));
  return call_method(rt, rt.text(rt.str(in)), "center", with);
}

Value truncate(R rt, V in, A args) {
  const auto given = rt.bind(args, {"length", "killwords", "end", "leeway"}, "truncate");
  const Text& text = rt.need_text(in, "what is truncated");
  const Text end = given[2] ? rt.need_text(*given[2], "an end") : Text("...", kMarkup);
  const Int length = given[0] ? rt.need_int(*given[0], "a length") : 255;
  const Int leeway = given[3] && !given[3]->is<None>() ? rt.need_int(*given[3], "a leeway") : 5;
  const Int kept = length - static_cast<Int>(count_characters(end.bytes()));
  if (kept < 0) return rt.wrong("truncate: found a length that is less than the end's");
  if (leeway < 0) return rt.wrong("truncate: found a leeway below 0");
  if (static_cast<Int>(count_characters(text.bytes())) <= length + leeway) return in;
  Text out = text.part(0, character_offset(text.bytes(), static_cast<std::size_t>(kept)));
  if (!is_set(given[1])) {
    const std::size_t blank = find_last_text(out.bytes(), " ");
    if (blank != Text::kNone) out = out.part(0, blank);
  }
  out.append(end);
  return rt.text(std::move(out));
}

/// Runs of \w; every character beyond ASCII that is no white space counts as one of a word.
Value wordcount(R rt, V in, A) {
  const Text text = rt.str(in);
  touch(2 * text.size());
  Int n = 0;
  bool is_within = false;
  for (std::size_t at = 0; at < text.size(); at += character_size(text.bytes(), at)) {
    const auto c = static_cast<unsigned char>(text.bytes()[at]);
    const bool is_word =
        c < 0x80 ? std::isalnum(c) != 0 || c == '_' : space_size(text.bytes(), at) == 0;
    n += is_word && !is_within ? 1 : 0;
    is_within = is_word;
  }
  return n;
}

/// Of a text; `/` stays, as urllib.parse.quote has it.
Value urlencode(R rt, V in, A) {
  if (in.dict() || in.list()) return rt.unsupported("the filter 'urlencode' of a list or a dict");
  const Text text = rt.str(in);
  Text out;
  for (std::size_t at = 0; at < text.size() && !out.is_too_long(); ++at) {
    const auto c = static_cast<unsigned char>(text.bytes()[at]);
    const bool stays =
        c < 0x80 && (std::isalnum(c) != 0 ||
                     std::string_view("_.-~/").find(static_cast<char>(c)) != Text::kNone);
    if (stays) {
      out.append(text, at, 1);
    } else {
      out.append(fmt::format("%{:02X}", c), text.tag_at(at));
    }
  }
  return rt.text(std::move(out));
}

Value escape(R rt, V in, A) {
  // What + makes of a text that is added to a safe one.
  return binary(rt, "+", rt.text(Text(), true), rt.text(rt.str(in)));
}

constexpr std::array kFilters = {
    Filter{"trim", [](R rt, V in, A args) { return stripped(rt, rt.str(in), "trim", args); }},
    Filter{"replace", replace},
    Filter{"indent", indent},
    Filter{"tojson", to_json},
    Filter{"default", default_value},
    Filter{"d", default_value},
    Filter{"int", to_int},
    Filter{"float", to_float},
    Filter{"round", round_number},
    Filter{"abs", absolute},
    Filter{"upper", cased<Case::kUpper>},
    Filter{"lower", cased<Case::kLower>},
    Filter{"capitalize", cased<Case::kCapitalize>},
    Filter{"title", cased<Case::kTitleFilter>},
    Filter{"format", format},
    Filter{"center", center},
    Filter{"truncate", truncate},
    Filter{"wordcount", wordcount},
    Filter{"urlencode", urlencode},
    Filter{"escape", escape},
    Filter{"e", escape},
    Filter{"string", [](R rt, V in, A) { return in.text() ? in : rt.text(rt.str(in)); }},
    Filter{"safe", [](R rt, V in, A) { return rt.text(rt.str(in), true); }},
};

const Filter* find_filter(std::string_view name) {
  for (const std::span<const Filter> filters : {text_filters(), list_filters()}) {
    const auto at = std::ranges::find(filters, name, &Filter::name);
    if (at != filters.end()) return &*at;
  }
  return nullptr;
}

}  // namespace

std::span<const Filter> text_filters() { return kFilters; }

bool is_filter(std::string_view name) { return find_filter(name) != nullptr; }

Value apply_filter(Runtime& rt, std::string_view name, const Value& input, const Args& args) {
  const Filter* filter = find_filter(name);
  if (!filter) return rt.unsupported(fmt::format("the filter '{}'", shown(name)));
  return rt.failed() ? Value() : filter->apply(rt, input, args);
}

}  // namespace llm::jinja
