#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/shown_text.h"
#include "engine/chat/jinja/runtime.h"

namespace llm::jinja {
namespace {

Value mismatch(Runtime& rt, std::string_view op, const Value& a, const Value& b) {
  if (!rt.is_there(a) || !rt.is_there(b)) return Undefined{};
  return rt.wrong(fmt::format("found '{}' {} '{}', need types that go together", type_name(a), op,
                              type_name(b)));
}

Value whole(Runtime& rt, std::string_view op, Int a, Int b) {
  Int result = 0;
  bool is_over = false;
  if (op == "+") is_over = __builtin_add_overflow(a, b, &result);
  if (op == "-") is_over = __builtin_sub_overflow(a, b, &result);
  if (op == "*") is_over = __builtin_mul_overflow(a, b, &result);
  if (op == "//" || op == "%") {
    if (b == 0) return rt.wrong("found a division by zero");
    const bool rounds_down = a % b != 0 && (a % b < 0) != (b < 0);
    result = op == "//" ? a / b - (rounds_down ? 1 : 0) : a % b + (rounds_down ? b : 0);
  }
  if (op == "**") {
    result = 1;
    for (; b > 0 && !is_over && rt.charge(); --b)
      is_over = __builtin_mul_overflow(result, a, &result);
  }
  if (is_over) return rt.unsupported("an integer of more than 128 bits");
  return result;
}

/// Products, which are the same everywhere; the C library's pow rounds as it likes.
Value power(Runtime& rt, double x, double y) {
  constexpr double kMost = 64;
  if (y != std::floor(y) || std::abs(y) > kMost)
    return rt.unsupported("a power with this exponent");
  double product = 1;
  for (int i = 0; i < static_cast<int>(std::abs(y)); ++i) product *= x;
  if (y < 0 && product == 0) return rt.wrong("found a division by zero");
  return y < 0 ? 1 / product : product;
}

Value arithmetic(Runtime& rt, std::string_view op, const Value& a, const Value& b) {
  const bool is_whole = a.integer() && b.integer();
  if (is_whole && op != "/" && !(op == "**" && *b.integer() < 0)) {
    return whole(rt, op, *a.integer(), *b.integer());
  }
  const double x = a.number();
  const double y = b.number();
  if (op == "+") return x + y;
  if (op == "-") return x - y;
  if (op == "*") return x * y;
  if (op == "**") return power(rt, x, y);
  if (y == 0) return rt.wrong("found a division by zero");
  if (op == "/") return x / y;
  if (op == "//") return std::floor(x / y);
  const double rest = std::fmod(x, y);
  return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

/// `times` copies one after the other.
Value repeated(Runtime& rt, const Value& value, Int times) {
  const auto n = static_cast<std::size_t>(std::clamp(times, Int{0}, Int{Text::kMaxBytes + 1}));
  if (const Text* text = value.text()) {
    if (text->empty()) return rt.text(Text());
    constexpr std::size_t kChunk = 4096;  // in chunks of about so many bytes
    const std::size_t at_once =
        std::clamp(kChunk / text->size(), std::size_t{1}, std::max(n, std::size_t{1}));
    Text chunk;
    for (std::size_t i = 0; i < at_once; ++i) chunk.append(*text);
    Text out;
    for (std::size_t i = 0; i < n / at_once && !out.is_too_long(); ++i) out.append(chunk);
    out.append(chunk, 0, n % at_once * text->size());
    return rt.text(std::move(out));
  }
  const auto& items = value.list()->items;
  Values out;
  for (std::size_t i = 0; i < n && !items.empty(); ++i) {
    touch(8 * items.size());
    out.insert(out.end(), items.begin(), items.end());
  }
  return rt.list(std::move(out), value.list()->is_tuple);
}

/// What MarkupSafe makes of a text that is added to a safe one.
Text escaped(const Text& text) {
  Text out;
  const std::string_view bytes = text.bytes();
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    const char c = bytes[at];
    const std::string_view entity = c == '&'    ? "&amp;"
                                    : c == '<'  ? "&lt;"
                                    : c == '>'  ? "&gt;"
                                    : c == '"'  ? "&#34;"
                                    : c == '\'' ? "&#39;"
                                                : bytes.substr(at, 1);
    out.append(entity, text.tag_at(at));
  }
  return out;
}

Value added(Runtime& rt, const Value& a, const Value& b) {
  if (a.text() && b.text()) {
    const bool a_safe = (*a.get<TextPtr>())->is_safe;
    const bool b_safe = (*b.get<TextPtr>())->is_safe;
    Text out;
    out.append(b_safe && !a_safe ? escaped(*a.text()) : *a.text());
    out.append(a_safe && !b_safe ? escaped(*b.text()) : *b.text());
    return rt.text(std::move(out), a_safe || b_safe);
  }
  if (!a.list() || !b.list() || type_name(a) != type_name(b) || a.list()->is_generator) {
    return mismatch(rt, "+", a, b);
  }
  touch(8 * (a.list()->items.size() + b.list()->items.size()));
  Values items = a.list()->items;
  items.insert(items.end(), b.list()->items.begin(), b.list()->items.end());
  return rt.list(std::move(items), a.list()->is_tuple);
}

/// The index of item `at` of `size`, from the end if negative; nothing outside.
std::optional<std::size_t> index_in(Int at, std::size_t size) {
  const Int n{size};
  if (at < 0) at += n;
  if (at < 0 || at >= n) return std::nullopt;
  return static_cast<std::size_t>(at);
}

Value loop_member(Runtime& rt, const Loop& loop, std::string_view name) {
  const Int index{loop.index};
  const Int n{loop.items->size()};
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "first") return index == 0;
  if (name == "last") return index + 1 == n;
  if (name == "length") return n;
  if (name == "revindex") return n - index;
  if (name == "revindex0") return n - index - 1;
  if (name == "depth") return Int{1};  // more only where a loop is recursive
  if (name == "depth0") return Int{0};
  if (name == "previtem" && index > 0) return (*loop.items)[loop.index - 1];
  if (name == "nextitem" && index + 1 < n) return (*loop.items)[loop.index + 1];
  if (name == "previtem") return rt.undefined("there is no previous item");
  if (name == "nextitem") return rt.undefined("there is no next item");
  if (name == "cycle" || name == "changed") return rt.unsupported(fmt::format("loop.{}", name));
  return rt.undefined(fmt::format("loop has no member '{}'", name));
}

}  // namespace

Value binary(Runtime& rt, std::string_view op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return arithmetic(rt, op, a, b);
  if (op == "+") return added(rt, a, b);
  if (op == "%" && a.text()) return format_percent(rt, *a.text(), b);
  const auto repeats = [](const Value& v) {
    return v.text() || (v.list() && !v.list()->is_generator);
  };
  if (op == "*" && repeats(a) && b.integer()) return repeated(rt, a, *b.integer());
  if (op == "*" && a.integer() && repeats(b)) return repeated(rt, b, *a.integer());
  return mismatch(rt, op, a, b);
}

bool compared(Runtime& rt, std::string_view op, const Value& a, const Value& b) {
  if (op == "==") return is_equal(a, b);
  if (op == "!=") return !is_equal(a, b);
  if (op == "in") return contains(rt, b, a);
  if (op == "not in") return !contains(rt, b, a);
  const auto order = compare(a, b);
  if (!order) {
    if (!a.is_number() || !b.is_number()) mismatch(rt, op, a, b);
    return false;
  }
  if (op == "<") return *order < 0;
  if (op == "<=") return *order <= 0;
  if (op == ">") return *order > 0;
  return *order >= 0;
}

bool contains(Runtime& rt, const Value& container, const Value& item) {
  if (const Text* text = container.text()) {
    return find_text(text->bytes(), rt.need_text(item, "what is sought in a str").bytes()) !=
           Text::kNone;
  }
  if (const DictObject* dict = container.dict()) return dict->items.find(item) != nullptr;
  if (const ListObject* list = container.list()) {
    return std::ranges::any_of(list->items, [&](const Value& v) { return is_equal(v, item); });
  }
  if (!container.is<Undefined>()) {
    rt.wrong(fmt::format("argument of type '{}' is not iterable", type_name(container)));
  }
  return false;
}

Value member_of(Runtime& rt, const Value& object, std::string_view name) {
  if (!rt.is_there(object)) return Undefined{};
  if (const auto* loop = object.get<const Loop*>()) return loop_member(rt, **loop, name);
  if (const auto* ns = object.get<NamespacePtr>()) {
    const Value* found = (*ns)->items.find(name);
    if (found) return *found;
  } else if (const std::string_view method = find_method(object, name); !method.empty()) {
    return MethodPtr(make_counted(MethodObject{object, method}));
  } else if (const DictObject* dict = object.dict()) {
    const Value* found = dict->items.find(name);
    if (found) return *found;
  } else if (const ListObject* list = object.list(); list && list->is_group) {
    if (name == "grouper") return list->items[0];
    if (name == "list") return list->items[1];
  }
  return rt.undefined(fmt::format("found no member '{}' in a value of type {}",
                                  shown(name.substr(0, kLineBytes)), type_name(object)));
}

Value item_of(Runtime& rt, const Value& object, const Value& key) {
  if (!rt.is_there(object)) return Undefined{};
  if (const DictObject* dict = object.dict()) {
    const Value* found = dict->items.find(key);
    if (found) return *found;
  } else if (const auto at = key.integer(); at && (object.list() || object.text())) {
    if (const ListObject* list = object.list()) {
      const auto i = index_in(*at, list->items.size());
      if (i && !list->is_generator) return list->items[*i];
    } else {
      const Text& text = *object.text();
      const auto i = index_in(*at, count_characters(text.bytes()));
      if (i) {
        const std::size_t offset = character_offset(text.bytes(), *i);
        return rt.text(text.part(offset, character_size(text.bytes(), offset)));
      }
    }
  }
  if (key.text()) return member_of(rt, object, key.text()->bytes());
  return rt.undefined(
      fmt::format("found no item {} in a value of type {}", shown_value(key), type_name(object)));
}

Value slice_of(Runtime& rt, const Value& object, const Values& bounds) {
  if (!rt.is_there(object)) return Undefined{};
  const bool is_generator = object.list() && object.list()->is_generator;
  if ((!object.list() && !object.text()) || is_generator) {
    return rt.wrong(fmt::format("'{}' object is not subscriptable", type_name(object)));
  }
  const auto bound = [&](std::size_t i, Int missing) -> Int {
    if (bounds[i].is<None>()) return missing;
    return rt.need_int(bounds[i], "a bound of a slice");
  };
  const Int step = bound(2, 1);
  if (step == 0) return rt.wrong("slice step cannot be zero");
  const Int n{object.list() ? object.list()->items.size()
                            : count_characters(object.text()->bytes())};
  const auto place = [&](std::size_t i, Int missing) {
    Int at = bound(i, missing);
    if (at < 0 && !bounds[i].is<None>()) at += n;
    return step > 0 ? std::clamp(at, Int{0}, n) : std::clamp(at, Int{-1}, n - 1);
  };
  const Int start = place(0, step > 0 ? Int{0} : n - 1);
  const Int stop = place(1, step > 0 ? n : Int{-1});
  if (object.text() && step == 1) {
    const Text& text = *object.text();
    const std::size_t from = character_offset(text.bytes(), static_cast<std::size_t>(start));
    const auto length = static_cast<std::size_t>(std::max(stop - start, Int{0}));
    return rt.text(text.part(from, character_offset(text.bytes().substr(from), length)));
  }
  const Values items = rt.items_of(object);
  Values taken;
  if (rt.failed()) return Undefined{};
  for (Int i = start; step > 0 ? i < stop : i > stop; i += step) {
    touch(16);
    taken.push_back(items[static_cast<std::size_t>(i)]);
    if (step > n || step < -n) break;  // i + step might not fit
  }
  if (object.list()) return rt.list(std::move(taken), object.list()->is_tuple);
  Text out;
  for (const Value& one : taken) out.append(*one.text());
  return rt.text(std::move(out));
}

}  // namespace llm::jinja
