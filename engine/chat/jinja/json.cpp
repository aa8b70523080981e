#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>

#include "base/utf8.h"
#include "engine/chat/jinja/runtime.h"

namespace llm::jinja {
namespace {

std::string json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return float_text(value);
}

void append_code(std::uint32_t code, Tag tag, Text& out) {
  if (code >= 0x10000) {
    append_code(0xD800 + ((code - 0x10000) >> 10), tag, out);
    return append_code(0xDC00 + ((code - 0x10000) & 0x3FF), tag, out);
  }
  out.append(fmt::format("\\u{:04x}", code), tag);
}

void append_string(const Text& text, bool ascii, Text& out) {
  constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b";
  constexpr std::string_view kLetters = "\"\\nrtfb";
  const std::string_view bytes = text.bytes();
  out.append("\"", kContent);
  std::size_t at = 0;
  for (const Text::Run& run : text.runs()) {
    while (at < run.end) {
      const std::size_t n = character_size(bytes, at);
      const auto first = static_cast<unsigned char>(bytes[at]);
      if (const std::size_t i = kEscaped.find(bytes[at]); i != Text::kNone) {
        out.append("\\", run.tag);
        out.append(kLetters.substr(i, 1), run.tag);
      } else if (first < 0x20) {
        append_code(first, run.tag, out);
      } else if (ascii && n > 1) {
        append_code(utf8_code_point(bytes.substr(at, n)), run.tag, out);
      } else {
        out.append(bytes.substr(at, n), run.tag);
      }
      at += n;
    }
  }
  out.append("\"", kContent);
}

void append_break(const JsonStyle& style, std::size_t level, Text& out) {
  if (!style.indent) return;
  out.append("\n", kContent);
  for (std::size_t i = 0; i < level; ++i) out.append(*style.indent, kContent);
}

/// What json.dumps makes of a key that is no string.
Value key_text(Runtime& rt, const Value& key) {
  if (key.text()) return key;
  if (key.is<bool>()) return rt.text(*key.get<bool>() ? "true" : "false", kContent);
  if (key.is<None>()) return rt.text("null", kContent);
  if (key.is<Int>()) return rt.text(int_text(*key.get<Int>()), kContent);
  if (key.is<double>()) return rt.text(json_number(*key.get<double>()), kContent);
  return rt.wrong(
      fmt::format("keys must be str, int, float, bool or None, not {}", type_name(key)));
}

void append_object(Runtime& rt, const DictObject& dict, const JsonStyle& style, Text& out,
                   std::size_t level) {
  const Pairs& items = dict.items;
  Vector<std::uint32_t> order(style.sort_keys ? items.size() : 0);
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, [&](std::uint32_t a, std::uint32_t b) {
    const auto found = rt.failed() ? std::nullopt : compare(items[a].first, items[b].first);
    if (!found) rt.wrong("found keys of several types, need one to sort by");
    return found && *found < 0;
  });
  out.append("{", kContent);
  for (std::size_t i = 0; i < items.size() && !rt.failed() && !out.is_too_long(); ++i) {
    if (i > 0) out.append(style.comma, kContent);
    append_break(style, level + 1, out);
    const auto& [name, value] = items[order.empty() ? i : order[i]];
    const Value key = key_text(rt, name);
    if (key.text()) append_string(*key.text(), style.ascii, out);
    out.append(style.colon, kContent);
    append_json(rt, value, style, out, level + 1);
  }
  if (!items.empty()) append_break(style, level, out);
  out.append("}", kContent);
}

}  // namespace

void append_json(Runtime& rt, const Value& value, const JsonStyle& style, Text& out,
                 std::size_t level) {
  if (!rt.charge()) return;
  if (const Text* text = value.text()) return append_string(*text, style.ascii, out);
  if (value.is<None>()) return out.append("null", kContent);
  if (const auto* b = value.get<bool>()) return out.append(*b ? "true" : "false", kContent);
  if (const auto* i = value.get<Int>()) return out.append(int_text(*i), kContent);
  if (const auto* d = value.get<double>()) return out.append(json_number(*d), kContent);
  if (const DictObject* dict = value.dict()) return append_object(rt, *dict, style, out, level);
  if (const ListObject* list = value.list()) {
    out.append("[", kContent);
    for (std::size_t i = 0; i < list->items.size() && !out.is_too_long(); ++i) {
      if (i > 0) out.append(style.comma, kContent);
      append_break(style, level + 1, out);
      append_json(rt, list->items[i], style, out, level + 1);
    }
    if (!list->items.empty()) append_break(style, level, out);
    return out.append("]", kContent);
  }
  rt.wrong(fmt::format("Object of type {} is not JSON serializable", type_name(value)));
}

}  // namespace llm::jinja
