#include <fmt/format.h>

#include <algorithm>

#include "engine/chat/jinja/runtime.h"

namespace llm::jinja {
namespace {

bool is_letter(char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }
char upper(char c) { return is_letter(c) ? static_cast<char>(c & ~0x20) : c; }
char lower(char c) { return is_letter(c) ? static_cast<char>(c | 0x20) : c; }

}  // namespace

Value stripped(Runtime& rt, const Text& self, std::string_view name, const Args& args) {
  const auto given = rt.bind(args, {"chars"}, name);
  const bool has_chars = given[0] && !given[0]->is<None>();
  const std::string_view chars = has_chars ? rt.need_text(*given[0], "chars").bytes() : "";
  const Stripped left =
      strip(self.bytes(), name != "rstrip", name != "lstrip", has_chars ? &chars : nullptr);
  return rt.text(self.part(left.begin, left.end - left.begin));
}

Texts split(const Text& text, std::string_view separator, std::size_t most, bool from_right) {
  const std::string_view bytes = text.bytes();
  Texts parts;
  if (!from_right) {
    std::size_t from = 0;
    while (parts.size() < most) {
      const std::size_t at = find_text(bytes, separator, from);
      if (at == Text::kNone) break;
      parts.push_back(text.part(from, at - from));
      from = at + separator.size();
    }
    parts.push_back(text.part(from));
    return parts;
  }
  touch(bytes.size() + separator.size());
  const String backwards(bytes.rbegin(), bytes.rend());
  const String what(separator.rbegin(), separator.rend());
  std::size_t from = 0;  // of what is backwards
  while (parts.size() < most) {
    const std::size_t at = find_text(backwards, what, from);
    if (at == Text::kNone) break;
    parts.push_back(text.part(bytes.size() - at, at - from));
    from = at + what.size();
  }
  parts.push_back(text.part(0, bytes.size() - from));
  std::ranges::reverse(parts);
  return parts;
}

Text replaced(const Text& text, const Text& from, const Text& to, std::size_t most) {
  const std::string_view bytes = text.bytes();
  Text out;
  std::size_t done = 0;
  for (std::size_t n = 0; n < most && !out.is_too_long(); ++n) {
    // An empty `from` is found before every character and at the end.
    const std::size_t at = find_text(
        bytes, from.bytes(),
        n > 0 && from.empty() && done < bytes.size() ? done + character_size(bytes, done) : done);
    if (at == Text::kNone || (from.empty() && n > 0 && done == bytes.size())) break;
    out.append(text, done, at - done);
    out.append(to);
    done = at + from.size();
  }
  out.append(text, done);
  return out;
}

Text with_case(Text text, Case to) {
  if (to == Case::kUpper) {
    text.change_bytes(upper);
  } else if (to == Case::kLower) {
    text.change_bytes(lower);
  } else if (to == Case::kCapitalize) {
    text.change_bytes([is_first = true](char c) mutable {
      const char changed = is_first ? upper(c) : lower(c);
      is_first = false;
      return changed;
    });
  } else {
    // str.title(): a letter after none is upper. The filter: after "-", brackets and white space.
    text.change_bytes([to, starts = true](char c) mutable {
      const char changed = starts ? upper(c) : lower(c);
      starts = to == Case::kTitle ? !is_letter(c) && (c & 0x80) == 0
                                  : std::string_view("-({[< \t\n\r\f\v").find(c) != Text::kNone;
      return changed;
    });
  }
  return text;
}

Value format_percent(Runtime& rt, const Text& format, const Value& values) {
  const std::string_view bytes = format.bytes();
  const bool is_tuple = values.list() && values.list()->is_tuple;
  const std::span<const Value> items =
      is_tuple ? std::span<const Value>(values.list()->items) : std::span(&values, 1);
  std::size_t used = 0;
  Text out;
  for (std::size_t at = 0; at < bytes.size() && !rt.failed(); ++at) {
    if (bytes[at] != '%') {
      const std::size_t end = std::min(bytes.find('%', at), bytes.size());
      out.append(format, at, end - at);
      at = end - 1;
      continue;
    }
    const char kind = ++at < bytes.size() ? bytes[at] : '\0';
    if (kind == '%') {
      out.append(format, at, 1);
      continue;
    }
    if (kind != 's' && kind != 'd' && kind != 'r') {
      return rt.unsupported(fmt::format("the format %{}", kind));
    }
    if (used == items.size()) return rt.wrong("not enough arguments for format string");
    const Value& value = items[used++];
    if (kind == 'r') append_repr(value, out);
    if (kind == 's') append_str(value, out);
    if (kind != 'd') continue;
    if (!value.is_number()) return rt.wrong("%d format: a real number is required");
    const auto whole = value.integer();
    out.append(int_text(whole ? *whole : static_cast<Int>(value.number())), kContent);
  }
  if (used < items.size() && !values.dict()) {
    return rt.wrong("not all arguments converted during string formatting");
  }
  return rt.text(std::move(out));
}

}  // namespace llm::jinja
