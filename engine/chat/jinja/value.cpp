#include "engine/chat/jinja/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

#include "base/seeded_hash.h"
#include "base/utf8.h"

namespace llm::jinja {
namespace {

constexpr std::array<std::string_view, 13> kTypeNames = {
    "Undefined", "NoneType",  "bool",   "int",      "float", "str",        "list",
    "dict",      "Namespace", "method", "function", "Macro", "LoopContext"};

/// Whether str.isprintable() says no of a character: controls, separators, format characters.
bool is_escaped(char32_t c) {
  struct Range {
    char32_t first, last;
  };
  constexpr std::array<Range, 14> kRanges = {{{0x00, 0x1F},
                                              {0x7F, 0xA0},
                                              {0xAD, 0xAD},
                                              {0x600, 0x605},
                                              {0x1680, 0x1680},
                                              {0x180E, 0x180E},
                                              {0x2000, 0x200F},
                                              {0x2028, 0x202F},
                                              {0x205F, 0x206F},
                                              {0x3000, 0x3000},
                                              {0xD800, 0xF8FF},
                                              {0xFEFF, 0xFEFF},
                                              {0xFFF9, 0xFFFB},
                                              {0xE0000, 0x10FFFF}}};
  return std::ranges::any_of(kRanges, [c](Range r) { return c >= r.first && c <= r.last; });
}

void append_text_repr(const Text& text, Text& out) {
  const std::string_view bytes = text.bytes();
  touch(2 * bytes.size());
  const bool is_double = bytes.find('\'') != Text::kNone && bytes.find('"') == Text::kNone;
  const std::string_view quote = is_double ? "\"" : "'";
  out.append(quote, kContent);
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t n = character_size(bytes, at);
    const std::string_view one = bytes.substr(at, n);
    const char32_t code = utf8_code_point(one);
    const Tag tag = text.tag_at(at);
    if (one == "\\" || one == quote) {
      out.append("\\", tag);
      out.append(one, tag);
    } else if (one == "\n" || one == "\r" || one == "\t") {
      out.append(one == "\n" ? "\\n" : one == "\r" ? "\\r" : "\\t", tag);
    } else if (is_escaped(code)) {
      const auto value = static_cast<std::uint32_t>(code);
      out.append(code < 0x100     ? fmt::format("\\x{:02x}", value)
                 : code < 0x10000 ? fmt::format("\\u{:04x}", value)
                                  : fmt::format("\\U{:08x}", value),
                 tag);
    } else {
      out.append(one, tag);
    }
    at += n;
  }
  out.append(quote, kContent);
}

}  // namespace

const Text* Value::text() const {
  const auto* p = get<TextPtr>();
  return p ? &(*p)->text : nullptr;
}
const ListObject* Value::list() const {
  const auto* p = get<ListPtr>();
  return p ? p->get() : nullptr;
}
const DictObject* Value::dict() const {
  const auto* p = get<DictPtr>();
  return p ? p->get() : nullptr;
}
std::optional<Int> Value::integer() const {
  if (const auto* b = get<bool>()) return *b ? 1 : 0;
  if (const auto* i = get<Int>()) return *i;
  return std::nullopt;
}
double Value::number() const {
  if (const auto* d = get<double>()) return *d;
  return static_cast<double>(*integer());
}

std::size_t depth_of(const Value& value) {
  if (const ListObject* list = value.list()) return list->depth;
  if (const DictObject* dict = value.dict()) return dict->depth;
  if (const auto* method = value.get<MethodPtr>()) return depth_of((*method)->self);
  return 0;
}

std::uint32_t NameKeys::hash(std::string_view name) {
  touch(32 + name.size());
  return static_cast<std::uint32_t>(SeededHash{}(name));
}

std::uint32_t ValueKeys::hash(const Value& key) {
  touch(16);
  if (const Text* text = key.text()) return hash(text->bytes());
  if (key.is_number()) return static_cast<std::uint32_t>(std::hash<double>{}(key.number()) >> 20);
  if (const auto* function = key.get<Function>()) return hash(function->name);
  auto combined = static_cast<std::uint32_t>(key.index());
  if (const ListObject* list = key.list()) {
    for (const Value& item : list->items) combined = combined * 1'000'003 ^ hash(item);
  }
  return combined;
}
bool ValueKeys::same(const Value& stored, const Value& key) { return is_equal(stored, key); }
bool ValueKeys::same(const Value& stored, std::string_view key) {
  const Text* text = stored.text();
  return text && NameKeys::same(text->bytes(), key);
}

bool is_true(const Value& value) {
  if (value.is<Undefined>() || value.is<None>()) return false;
  if (value.is_number()) return value.is<double>() ? value.number() != 0 : *value.integer() != 0;
  if (const Text* text = value.text()) return !text->empty();
  if (const ListObject* list = value.list()) return list->is_generator || !list->items.empty();
  if (const DictObject* dict = value.dict()) return !dict->items.empty();
  return true;
}

bool is_equal(const Value& a, const Value& b) {
  touch(8);
  if (a.is_number() && b.is_number()) {
    if (a.integer() && b.integer()) return *a.integer() == *b.integer();
    return a.number() == b.number();
  }
  if (a.index() != b.index()) return false;
  if (const Text* text = a.text()) return NameKeys::same(text->bytes(), b.text()->bytes());
  if (const ListObject* list = a.list()) {
    const ListObject* other = b.list();
    if (list->is_generator || other->is_generator) return list == other;
    return list->is_tuple == other->is_tuple &&
           std::ranges::equal(list->items, other->items, is_equal);
  }
  if (const DictObject* dict = a.dict()) {
    const DictObject* other = b.dict();
    return dict->items.size() == other->items.size() &&
           std::ranges::all_of(dict->items, [&](const auto& item) {
             const Value* found = other->items.find(item.first);
             return found && is_equal(item.second, *found);
           });
  }
  if (const auto* ns = a.get<NamespacePtr>()) return *ns == *b.get<NamespacePtr>();
  if (const auto* macro = a.get<const Macro*>()) return *macro == *b.get<const Macro*>();
  if (const auto* function = a.get<Function>()) return function->name == b.get<Function>()->name;
  return a.is<Undefined>() || a.is<None>();
}

std::optional<std::partial_ordering> compare(const Value& a, const Value& b) {
  touch(16);
  if (a.is_number() && b.is_number()) {
    if (!a.integer() || !b.integer()) return a.number() <=> b.number();
    const Int x = *a.integer();
    const Int y = *b.integer();
    return x < y   ? std::partial_ordering::less
           : x > y ? std::partial_ordering::greater
                   : std::partial_ordering::equivalent;
  }
  if (a.text() && b.text()) {
    // Bytes of UTF-8 are in the order of the characters.
    touch(std::min(a.text()->size(), b.text()->size()));
    const int order = a.text()->bytes().compare(b.text()->bytes());
    return order <=> 0;
  }
  if (!a.list() || !b.list() || type_name(a) != type_name(b) || a.list()->is_generator)
    return std::nullopt;
  const auto& x = a.list()->items;
  const auto& y = b.list()->items;
  for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (!is_equal(x[i], y[i])) return compare(x[i], y[i]);
  }
  return x.size() <=> y.size();
}

std::string_view type_name(const Value& value) {
  if (value.list() && value.list()->is_tuple) return "tuple";
  if (value.list() && value.list()->is_generator) return "generator";
  return kTypeNames[value.index()];
}

std::string float_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string int_text(Int value) {
  std::string digits;
  const bool is_negative = value < 0;
  do {
    const int digit = static_cast<int>(value % 10);
    digits += static_cast<char>('0' + (digit < 0 ? -digit : digit));
    value /= 10;
  } while (value != 0);
  if (is_negative) digits += '-';
  std::ranges::reverse(digits);
  return digits;
}

std::string_view undefined_text(const Value& value) {
  const auto* undefined = value.get<Undefined>();
  return undefined && undefined->what ? std::string_view(*undefined->what)
                                      : "a value that is undefined";
}

void append_str(const Value& value, Text& out) {
  if (value.is<Undefined>()) return;
  if (const Text* text = value.text()) return out.append(*text);
  append_repr(value, out);
}

void append_repr(const Value& value, Text& out) {
  const auto append = [&out](std::string_view text) { out.append(text, kContent); };
  if (value.is<Undefined>()) return append("Undefined");
  if (value.is<None>()) return append("None");
  if (const auto* b = value.get<bool>()) return append(*b ? "True" : "False");
  if (const auto* i = value.get<Int>()) return append(int_text(*i));
  if (const auto* d = value.get<double>()) return append(float_text(*d));
  if (const Text* text = value.text()) return append_text_repr(*text, out);
  if (const ListObject* list = value.list()) {
    append(list->is_tuple ? "(" : "[");
    for (std::size_t i = 0; i < list->items.size() && !out.is_too_long(); ++i) {
      if (i > 0) append(", ");
      append_repr(list->items[i], out);
    }
    if (list->is_tuple && list->items.size() == 1) append(",");
    return append(list->is_tuple ? ")" : "]");
  }
  if (const DictObject* dict = value.dict()) {
    append("{");
    for (std::size_t i = 0; i < dict->items.size() && !out.is_too_long(); ++i) {
      if (i > 0) append(", ");
      append_repr(dict->items[i].first, out);
      append(": ");
      append_repr(dict->items[i].second, out);
    }
    return append("}");
  }
  append("<");
  append(type_name(value));
  append(">");
}

}  // namespace llm::jinja
