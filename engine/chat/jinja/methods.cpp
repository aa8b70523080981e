#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/shown_text.h"
#include "engine/chat/jinja/runtime.h"

namespace llm::jinja {
namespace {

using Names = std::initializer_list<std::string_view>;

constexpr std::size_t kAll = Text::kNone;

/// The most cuts or replacements that an argument allows.
std::size_t count_of(Runtime& rt, const Value* value) {
  if (!value) return kAll;
  const Int n = rt.need_int(*value, "a count");
  return n < 0 ? kAll : static_cast<std::size_t>(n);
}

Value texts(Runtime& rt, Texts parts, bool is_tuple = false) {
  Values values;
  for (Text& part : parts) values.push_back(rt.text(std::move(part)));
  return rt.list(std::move(values), is_tuple);
}

/// split() without a separator: at runs of white space, none at the ends; but what is left after
/// `most` cuts keeps its own.
Texts split_at_spaces(const Text& self, std::size_t most) {
  const std::string_view bytes = self.bytes();
  touch(2 * bytes.size());
  Texts parts;
  std::size_t at = 0;
  while (true) {
    while (const std::size_t n = space_size(bytes, at)) at += n;
    if (at == bytes.size()) return parts;
    if (parts.size() == most) break;
    const std::size_t begin = at;
    while (at < bytes.size() && space_size(bytes, at) == 0) at += character_size(bytes, at);
    parts.push_back(self.part(begin, at - begin));
  }
  parts.push_back(self.part(at));
  return parts;
}

/// The same from the end.
Texts split_at_last_spaces(const Text& self, std::size_t most) {
  const std::string_view bytes = self.bytes();
  touch(2 * bytes.size());
  Texts parts;
  std::size_t end = bytes.size();
  const auto before = [&](bool is_space) {  // the end of what is not so, from `end` on
    while (end > 0) {
      const std::size_t last = last_character(bytes.substr(0, end));
      if ((space_size(bytes, last) > 0) != is_space) return;
      end = last;
    }
  };
  while (true) {
    before(true);
    if (end == 0 || parts.size() == most) break;
    const std::size_t behind = end;
    before(false);
    parts.push_back(self.part(end, behind - end));
  }
  if (end > 0) parts.push_back(self.part(0, end));
  std::ranges::reverse(parts);
  return parts;
}

Value split_method(Runtime& rt, const Text& self, std::string_view name, const Args& args) {
  const auto given = rt.bind(args, {"sep", "maxsplit"}, name);
  const std::size_t most = count_of(rt, given[1]);
  const bool from_right = name == "rsplit";
  if (!given[0] || given[0]->is<None>()) {
    return texts(rt, from_right ? split_at_last_spaces(self, most) : split_at_spaces(self, most));
  }
  const std::string_view separator = rt.need_text(*given[0], "a separator").bytes();
  if (separator.empty()) return rt.wrong("empty separator");
  return texts(rt, split(self, separator, most, from_right));
}

Value partition(Runtime& rt, const Text& self, std::string_view name, const Args& args) {
  const auto given = rt.bind(args, {"sep"}, name);
  if (!given[0] || rt.need_text(*given[0], "a separator").empty()) {
    return rt.wrong("empty separator");
  }
  const Text& separator = *given[0]->text();
  const bool from_right = name == "rpartition";
  const std::size_t at = from_right ? find_last_text(self.bytes(), separator.bytes())
                                    : find_text(self.bytes(), separator.bytes());
  if (at == Text::kNone) {
    return texts(rt, from_right ? Texts{{}, {}, self} : Texts{self, {}, {}}, true);
  }
  return texts(rt, {self.part(0, at), separator, self.part(at + separator.size())}, true);
}

Value split_lines(Runtime& rt, const Text& self, const Args& args) {
  constexpr std::array<std::string_view, 11> kBreaks = {
      "\r\n", "\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\u0085", "\u2028", "\u2029"};
  const auto given = rt.bind(args, {"keepends"}, "splitlines");
  const bool keeps = given[0] && is_true(*given[0]);
  const std::string_view bytes = self.bytes();
  Texts lines;
  std::size_t begin = 0;
  touch(16 * bytes.size());
  for (std::size_t at = 0; at < bytes.size();) {
    const auto found = std::ranges::find_if(
        kBreaks, [&](std::string_view b) { return bytes.substr(at).starts_with(b); });
    const std::size_t n = found == kBreaks.end() ? 0 : found->size();
    if (n > 0) {
      lines.push_back(self.part(begin, at - begin + (keeps ? n : 0)));
      begin = at + n;
    }
    at += std::max(n, std::size_t{1});
  }
  if (begin < bytes.size()) lines.push_back(self.part(begin));
  return texts(rt, std::move(lines));
}

/// startswith, endswith: one text, or a tuple of them.
Value has_end(Runtime& rt, const Text& self, bool at_start, const Args& args) {
  const auto given = rt.bind(args, {"prefix"}, at_start ? "startswith" : "endswith");
  if (!given[0]) return rt.wrong("found no argument, need a str");
  const auto fits = [&](const Value& one) {
    const std::string_view end = rt.need_text(one, "what a str starts or ends with").bytes();
    return at_start ? starts_with(self.bytes(), end) : ends_with(self.bytes(), end);
  };
  const ListObject* list = given[0]->list();
  if (list && list->is_tuple) return std::ranges::any_of(list->items, fits);
  return fits(*given[0]);
}

Value position(Runtime& rt, const Text& self, std::string_view name, const Args& args) {
  const auto given = rt.bind(args, {"sub"}, name);
  if (!given[0]) return rt.wrong("found no argument, need a str");
  const std::string_view sub = rt.need_text(*given[0], "what is sought").bytes();
  const std::string_view bytes = self.bytes();
  if (name == "count") {
    if (sub.empty()) return Int{count_characters(bytes)} + 1;
    Int n = 0;
    for (std::size_t at = 0; (at = find_text(bytes, sub, at)) != Text::kNone; at += sub.size()) ++n;
    return n;
  }
  const std::size_t at = name.starts_with('r') ? find_last_text(bytes, sub) : find_text(bytes, sub);
  if (at == Text::kNone && name.ends_with("index")) return rt.wrong("substring not found");
  if (at == Text::kNone) return Int{-1};
  return Int{count_characters(bytes.substr(0, at))};
}

/// "{} {0} {name}".format(...), without format specifications.
Value format_method(Runtime& rt, const Text& self, const Args& args) {
  const std::string_view bytes = self.bytes();
  std::size_t next = 0;
  Text out;
  for (std::size_t at = 0; at < bytes.size() && !rt.failed(); ++at) {
    const bool is_double = at + 1 < bytes.size() && bytes[at + 1] == bytes[at];
    if (bytes[at] != '{' && bytes[at] != '}') {
      out.append(self, at, 1);
    } else if (is_double) {
      out.append(self, at++, 1);
    } else {
      const std::size_t end = bytes.find('}', at);
      if (bytes[at] == '}' || end == Text::kNone)
        return rt.wrong("found a single brace in a format");
      const std::string_view field = bytes.substr(at + 1, end - at - 1);
      touch(2 * field.size());
      const bool is_index =
          field.find_first_not_of("0123456789") == Text::kNone && field.size() < 6;
      const Value* named = nullptr;
      for (const auto& [name, value] : args.named) {
        if (NameKeys::same(name, field)) named = &value;
      }
      const std::size_t index = field.empty() ? next++
                                : is_index    ? std::stoul(std::string(field))
                                              : 0;
      if (is_index && index < args.values.size()) {
        append_str(args.values[index], out);
      } else if (!is_index && named) {
        append_str(*named, out);
      } else {
        return rt.unsupported(
            fmt::format("the field {} of a format", quoted(field.substr(0, kLineBytes))));
      }
      at = end;
    }
  }
  return rt.text(std::move(out));
}

/// center, ljust, rjust and zfill.
Value padded(Runtime& rt, const Text& self, std::string_view name, const Args& args) {
  const bool is_number = name == "zfill";
  const auto given =
      is_number ? rt.bind(args, {"width"}, name) : rt.bind(args, {"width", "fillchar"}, name);
  if (!given[0]) return rt.wrong(fmt::format("{} needs a width", name));
  const Int width = rt.need_int(*given[0], "a width");
  const Text fill = is_number  ? Text("0", kMarkup)
                    : given[1] ? rt.need_text(*given[1], "a fill character")
                               : Text(" ", kMarkup);
  if (count_characters(fill.bytes()) != 1)
    return rt.wrong("The fill character must be exactly one character long");
  const Int margin = width - static_cast<Int>(count_characters(self.bytes()));
  if (margin <= 0) return rt.text(self);
  const Int left = name == "ljust"    ? 0
                   : name == "center" ? margin / 2 + (margin & width & 1)
                                      : margin;
  const std::size_t sign =
      is_number && (self.bytes().starts_with('-') || self.bytes().starts_with('+')) ? 1 : 0;
  const Value begin =
      binary(rt, "+", rt.text(self.part(0, sign)), binary(rt, "*", rt.text(fill), left));
  const Value end =
      binary(rt, "+", rt.text(self.part(sign)), binary(rt, "*", rt.text(fill), margin - left));
  return binary(rt, "+", begin, end);
}

Value is_made_of(const Text& self, std::string_view name) {
  bool has_cased = false;
  touch(4 * self.size());
  for (const char c : self.bytes()) {
    const bool is_digit = c >= '0' && c <= '9';
    const bool is_upper = c >= 'A' && c <= 'Z';
    const bool is_lower = c >= 'a' && c <= 'z';
    has_cased = has_cased || is_upper || is_lower;
    if (name == "isdigit" || name == "isnumeric" || name == "isdecimal") {
      if (!is_digit) return false;
    } else if (name == "isalpha" || name == "isalnum") {
      if (!is_upper && !is_lower && (c & 0x80) == 0 && (name == "isalpha" || !is_digit))
        return false;
    } else if ((name == "isupper" && is_lower) || (name == "islower" && is_upper)) {
      return false;
    }
  }
  if (name == "isupper" || name == "islower") return has_cased;
  if (name == "isspace")
    return !self.empty() && strip(self.bytes(), true, false).begin == self.size();
  return !self.empty();
}

Value text_method(Runtime& rt, const Text& self, std::string_view name, const Args& args) {
  if (name.ends_with("strip")) return stripped(rt, self, name, args);
  if (name == "split" || name == "rsplit") return split_method(rt, self, name, args);
  if (name == "splitlines") return split_lines(rt, self, args);
  if (name.ends_with("partition")) return partition(rt, self, name, args);
  if (name == "startswith" || name == "endswith")
    return has_end(rt, self, name == "startswith", args);
  if (name == "upper") return rt.text(with_case(self, Case::kUpper));
  if (name == "lower" || name == "casefold") return rt.text(with_case(self, Case::kLower));
  if (name == "title") return rt.text(with_case(self, Case::kTitle));
  if (name == "capitalize") return rt.text(with_case(self, Case::kCapitalize));
  if (name.ends_with("just") || name == "center" || name == "zfill")
    return padded(rt, self, name, args);
  if (name == "format") return format_method(rt, self, args);
  if (name == "join") {
    Args with{{rt.text(self)}, {}};
    const auto given = rt.bind(args, {"iterable"}, name);
    if (!given[0]) return rt.wrong("join needs an iterable");
    for (const Value& item : rt.items_of(*given[0])) rt.need_text(item, "an item to join");
    return apply_filter(rt, "join", *given[0], with);
  }
  if (name == "replace") {
    const auto given = rt.bind(args, {"old", "new", "count"}, name);
    if (!given[0] || !given[1]) return rt.wrong("replace needs two arguments");
    const Text& from = rt.need_text(*given[0], "what is replaced");
    const Text& to = rt.need_text(*given[1], "a replacement");
    return rt.text(replaced(self, from, to, count_of(rt, given[2])));
  }
  if (name == "removeprefix" || name == "removesuffix") {
    const auto given = rt.bind(args, {"affix"}, name);
    const std::string_view affix = given[0] ? rt.need_text(*given[0], name).bytes() : "";
    const bool is_front = name == "removeprefix";
    const bool has = is_front ? starts_with(self.bytes(), affix) : ends_with(self.bytes(), affix);
    if (!has) return rt.text(self);
    return rt.text(self.part(is_front ? affix.size() : 0, self.size() - affix.size()));
  }
  if (name.starts_with("is")) return is_made_of(self, name);
  return position(rt, self, name, args);
}

Value dict_method(Runtime& rt, const Value& self, std::string_view name, const Args& args) {
  const DictObject& dict = *self.dict();
  if (name == "get") {
    const auto given = rt.bind(args, {"key", "default"}, name);
    const Value* found = given[0] ? dict.items.find(*given[0]) : nullptr;
    if (found) return *found;
    return given[1] ? *given[1] : Value(None{});
  }
  if (name == "copy") return self;
  Values out;
  touch(8 * dict.items.size());
  for (const auto& [key, value] : dict.items) {
    out.push_back(name == "keys" ? key : name == "values" ? value : rt.list({key, value}, true));
  }
  return rt.list(std::move(out));
}

Value list_method(Runtime& rt, const Value& self, std::string_view name, const Args& args) {
  if (name == "copy") return self;
  const auto given = rt.bind(args, {"value"}, name);
  if (!given[0]) return rt.wrong("found no argument, need a value");
  const auto& items = self.list()->items;
  const auto same = [&](const Value& item) { return is_equal(item, *given[0]); };
  if (name == "count") return Int{std::ranges::count_if(items, same)};
  const auto at = std::ranges::find_if(items, same);
  if (at == items.end()) return rt.wrong("found a value that is not in the list");
  return Int{at - items.begin()};
}

constexpr std::array<std::string_view, 37> kTextMethods = {
    "strip",      "lstrip",     "rstrip",    "split",   "rsplit",  "splitlines",   "partition",
    "rpartition", "startswith", "endswith",  "upper",   "lower",   "casefold",     "title",
    "capitalize", "format",     "join",      "replace", "count",   "removeprefix", "removesuffix",
    "isdigit",    "isnumeric",  "isdecimal", "isalpha", "isalnum", "isupper",      "islower",
    "isspace",    "find",       "rfind",     "index",   "rindex",  "center",       "ljust",
    "rjust",      "zfill"};
constexpr std::array<std::string_view, 5> kDictMethods = {"get", "items", "keys", "values", "copy"};
constexpr std::array<std::string_view, 3> kListMethods = {"copy", "count", "index"};

}  // namespace

std::string_view find_method(const Value& self, std::string_view name) {
  const auto in = [&](const auto& names) -> std::string_view {
    const auto at = std::ranges::find(names, name);
    return at == names.end() ? std::string_view() : *at;
  };
  if (self.text()) return in(kTextMethods);
  if (self.dict()) return in(kDictMethods);
  return self.list() && !self.list()->is_generator ? in(kListMethods) : std::string_view();
}

Value call_method(Runtime& rt, const Value& self, std::string_view name, const Args& args) {
  if (self.text()) return text_method(rt, *self.text(), name, args);
  if (self.dict()) return dict_method(rt, self, name, args);
  return list_method(rt, self, name, args);
}

}  // namespace llm::jinja
