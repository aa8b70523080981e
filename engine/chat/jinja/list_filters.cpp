#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <optional>

#include "engine/chat/jinja/filters.h"

namespace llm::jinja {
namespace {

using R = Runtime&;
using V = const Value&;
using A = const Args&;

/// What is undefined, as `missing` where that is given.
Value or_default(Value value, const Value* missing) {
  return value.is<Undefined>() && missing && !missing->is<None>() ? *missing : value;
}

/// item["a"]["b"] of the attribute "a.b"; digits are indices. `missing`: for each that is
/// undefined.
Value attribute_of(R rt, V item, V attribute, const Value* missing = nullptr) {
  if (attribute.integer()) return or_default(item_of(rt, item, attribute), missing);
  Value at = item;
  for (const Text& name : split(rt.need_text(attribute, "an attribute"), ".", Text::kNone, false)) {
    const bool is_index = !name.empty() && name.size() < 9 &&
                          name.bytes().find_first_not_of("0123456789") == Text::kNone;
    at = or_default(
        item_of(rt, at,
                is_index ? Value(Int{std::stol(std::string(name.bytes()))}) : rt.text(name)),
        missing);
  }
  return at;
}

/// What an item is sorted or told apart by: its attribute, and letters all small.
Value key_of(R rt, V item, const Value* attribute, bool with_case_,
             const Value* missing = nullptr) {
  const bool has = attribute && !attribute->is<None>();
  const Value key = has ? attribute_of(rt, item, *attribute, missing) : item;
  return key.text() && !with_case_ ? rt.text(with_case(*key.text(), Case::kLower)) : key;
}

/// Items and what they are sorted by.
struct Keyed {
  Values keys;
  Values items;
};

/// The order of the keys, equal ones as they were; fails where two keys have none.
Vector<std::uint32_t> order_of(R rt, const Keyed& keyed, bool is_reversed) {
  Vector<std::uint32_t> order(keyed.items.size());
  touch(64 * order.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, [&](std::uint32_t a, std::uint32_t b) {
    return rt.charge() && compared(rt, is_reversed ? ">" : "<", keyed.keys[a], keyed.keys[b]);
  });
  return order;
}

Value sorted(R rt, const Keyed& keyed, bool is_reversed) {
  Values out;
  out.reserve(keyed.items.size());
  for (const std::uint32_t i : order_of(rt, keyed, is_reversed)) out.push_back(keyed.items[i]);
  return rt.list(std::move(out));
}

Value sort(R rt, V in, A args) {
  const auto given = rt.bind(args, {"reverse", "case_sensitive", "attribute"}, "sort");
  Keyed keyed{.keys = {}, .items = rt.items_of(in)};
  for (const Value& item : keyed.items) {
    keyed.keys.push_back(key_of(rt, item, given[2], is_set(given[1])));
  }
  return sorted(rt, keyed, is_set(given[0]));
}

Value groupby(R rt, V in, A args) {
  const auto given = rt.bind(args, {"attribute", "default", "case_sensitive"}, "groupby");
  if (!given[0]) return rt.wrong("groupby needs an attribute");
  const bool with_case_ = is_set(given[2]);
  Keyed keyed{.keys = {}, .items = rt.items_of(in)};
  for (const Value& item : keyed.items)
    keyed.keys.push_back(key_of(rt, item, given[0], with_case_, given[1]));
  Values groups;
  Values items;
  const Vector<std::uint32_t> order = order_of(rt, keyed, false);
  for (std::size_t i = 0; i < order.size() && rt.charge(); ++i) {
    items.push_back(keyed.items[order[i]]);
    if (i + 1 < order.size() && is_equal(keyed.keys[order[i]], keyed.keys[order[i + 1]])) continue;
    ListObject group{.items = {}, .is_tuple = true, .is_group = true};
    group.items.push_back(attribute_of(rt, items.front(), *given[0], given[1]));
    group.items.push_back(rt.list(std::exchange(items, {})));
    if (!rt.may_hold(group.items[0], group.depth) || !rt.may_hold(group.items[1], group.depth))
      break;
    groups.emplace_back(ListPtr(make_counted(std::move(group))));
  }
  return rt.list(std::move(groups));
}

/// Lists of `size` items each, the last filled up.
Value batch(R rt, V in, A args) {
  const auto given = rt.bind(args, {"linecount", "fill_with"}, "batch");
  if (!given[0]) return rt.wrong("batch needs a number");
  const Int size = rt.need_int(*given[0], "a number of items");
  Values out;
  Values items;
  for (const Value& item : rt.items_of(in)) {
    if (!rt.charge()) break;
    if (static_cast<Int>(items.size()) == size) out.push_back(rt.list(std::exchange(items, {})));
    items.push_back(item);
  }
  if (items.empty()) return rt.generator(std::move(out));
  while (given[1] && !given[1]->is<None>() && static_cast<Int>(items.size()) < size && rt.charge())
    items.push_back(*given[1]);
  out.push_back(rt.list(std::move(items)));
  return rt.generator(std::move(out));
}

/// `n` lists, the first ones longer by one where the items do not divide.
Value slice(R rt, V in, A args) {
  const auto given = rt.bind(args, {"slices", "fill_with"}, "slice");
  if (!given[0]) return rt.wrong("slice needs a number");
  const Int n = rt.need_int(*given[0], "a number of slices");
  const Values items = rt.items_of(in);
  if (n == 0) return rt.wrong("integer division or modulo by zero");
  const Int size = static_cast<Int>(items.size()) / n;
  const Int n_longer = static_cast<Int>(items.size()) % n;
  const bool fills = given[1] && !given[1]->is<None>();
  Values out;
  auto next = items.begin();
  for (Int i = 0; i < n && rt.charge(); ++i) {
    const auto end = next + static_cast<std::ptrdiff_t>(size + (i < n_longer ? 1 : 0));
    Values part(next, end);
    if (fills && i >= n_longer) part.push_back(*given[1]);
    out.push_back(rt.list(std::move(part)));
    next = end;
  }
  return rt.generator(std::move(out));
}

Value pair_list(R rt, V in) {
  if (in.is<Undefined>()) return rt.list({});
  if (!in.dict()) return rt.wrong("Can only get item pairs from a mapping.");
  return call_method(rt, in, "items", {});
}

Value dictsort(R rt, V in, A args) {
  const auto given = rt.bind(args, {"case_sensitive", "by", "reverse"}, "dictsort");
  const bool by_value = given[1] && rt.need_text(*given[1], "by").bytes() == "value";
  const Value at(Int{by_value ? 1 : 0});
  if (!in.dict() && rt.is_there(in)) return rt.wrong("dictsort needs a mapping");
  Keyed keyed{.keys = {}, .items = rt.items_of(pair_list(rt, in))};
  for (const Value& pair : keyed.items) {
    keyed.keys.push_back(key_of(rt, item_of(rt, pair, at), nullptr, is_set(given[0])));
  }
  return sorted(rt, keyed, is_set(given[2]));
}

Value unique(R rt, V in, A args) {
  const auto given = rt.bind(args, {"case_sensitive", "attribute"}, "unique");
  Pairs found;
  for (const Value& item : rt.items_of(in)) {
    const Value key = key_of(rt, item, given[1], is_set(given[0]));
    if (!rt.charge() || !rt.is_key(key)) break;
    if (!found.find(key)) found.set(key, item);
  }
  Values out;
  for (const auto& [key, item] : found) out.push_back(item);
  return rt.generator(std::move(out));
}

template <bool kMax>
Value extreme(R rt, V in, A args) {
  const auto given = rt.bind(args, {"case_sensitive", "attribute"}, kMax ? "max" : "min");
  std::optional<std::pair<Value, Value>> best;
  for (const Value& item : rt.items_of(in)) {
    Value key = key_of(rt, item, given[1], is_set(given[0]));
    if (best && !compared(rt, kMax ? ">" : "<", key, best->first)) continue;
    best.emplace(std::move(key), item);
  }
  return best ? best->second : rt.undefined("No aggregated item, sequence was empty.");
}

Value sum(R rt, V in, A args) {
  const auto given = rt.bind(args, {"attribute", "start"}, "sum");
  Value total = given[1] ? *given[1] : Value(Int{0});
  const bool has = given[0] && !given[0]->is<None>();
  for (const Value& item : rt.items_of(in)) {
    total = binary(rt, "+", total, has ? attribute_of(rt, item, *given[0]) : item);
  }
  return total;
}

Value join(R rt, V in, A args) {
  const auto given = rt.bind(args, {"d", "attribute"}, "join");
  const Text between = given[0] ? rt.str(*given[0]) : Text();
  const bool has = given[1] && !given[1]->is<None>();
  Text out;
  bool is_first = true;
  for (const Value& item : rt.items_of(in)) {
    if (rt.failed() || out.is_too_long()) break;
    if (!is_first) out.append(between);
    is_first = false;
    append_str(has ? attribute_of(rt, item, *given[1]) : item, out);
  }
  return rt.text(std::move(out));
}

Value length(R rt, V in, A) {
  if (const Text* text = in.text()) return Int{count_characters(text->bytes())};
  if (const ListObject* list = in.list(); list && !list->is_generator)
    return Int{list->items.size()};
  if (const DictObject* dict = in.dict()) return Int{dict->items.size()};
  if (in.is<Undefined>()) return Int{0};
  return rt.wrong(fmt::format("object of type '{}' has no len()", type_name(in)));
}

Value first(R rt, V in, A) {
  const Values items = rt.items_of(in);
  return items.empty() ? rt.undefined("No first item, sequence was empty.") : items.front();
}

Value last(R rt, V in, A) {
  if (in.list() && in.list()->is_generator) return rt.wrong("'generator' object is not reversible");
  const Values items = rt.items_of(in);
  return items.empty() ? rt.undefined("No last item, sequence was empty.") : items.back();
}

Value reverse(R rt, V in, A) {
  Values items = rt.items_of(in);
  std::ranges::reverse(items);
  if (in.list() && in.list()->is_generator) return rt.list(std::move(items));
  if (!in.text()) return rt.generator(std::move(items));
  Text out;
  for (const Value& item : items) append_str(item, out);
  return rt.text(std::move(out));
}

/// The arguments behind the first `n`.
Args rest(A args, std::size_t n) {
  Args left = args;
  left.values.erase(left.values.begin(), left.values.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                                   n, args.values.size())));
  return left;
}

/// map("filter", ...), or map(attribute="a", default=d).
Value map(R rt, V in, A args) {
  if (!is_true(in)) return rt.generator({});  // whatever it is, and whatever the arguments are
  Values out;
  const auto named = args.values.empty() ? rt.bind(args, {"attribute", "default"}, "map")
                                         : std::vector<const Value*>(2);
  if (args.values.empty() && !named[0]) return rt.wrong("map requires a filter argument");
  const Args others = rest(args, 1);
  for (const Value& item : rt.items_of(in)) {
    if (!rt.charge()) break;
    if (named[0]) {
      out.push_back(attribute_of(rt, item, *named[0], named[1]));
    } else {
      const std::string_view name = rt.need_text(args.values[0], "a filter's name").bytes();
      out.push_back(apply_filter(rt, name, item, others));
    }
  }
  return rt.generator(std::move(out));
}

/// select, reject ("test", ...) and selectattr, rejectattr ("attribute", "test", ...).
template <bool kKeeps, bool kByAttribute>
Value chosen(R rt, V in, A args) {
  if (!is_true(in)) return rt.generator({});
  constexpr std::size_t kBefore = kByAttribute ? 1 : 0;
  if (args.values.size() < kBefore) return rt.wrong("found no attribute's name, need one");
  Values out;
  const Args others = rest(args, kBefore + 1);
  for (const Value& item : rt.items_of(in)) {
    if (!rt.charge()) break;
    Value subject = item;
    if constexpr (kByAttribute) subject = attribute_of(rt, item, args.values[0]);
    const bool has_test = args.values.size() > kBefore;
    const bool holds =
        has_test ? apply_test(rt, rt.need_text(args.values[kBefore], "a test's name").bytes(),
                              subject, others)
                 : is_true(subject);
    if (holds == kKeeps) out.push_back(item);
  }
  return rt.generator(std::move(out));
}

Value attr(R rt, V in, A args) {
  const auto given = rt.bind(args, {"name"}, "attr");
  if (!given[0]) return rt.wrong("attr needs a name");
  const std::string_view name = rt.need_text(*given[0], "a name").bytes();
  // Unlike the dot, it does not look into dicts.
  if (in.dict() && find_method(in, name).empty()) return rt.undefined("found no such member");
  return member_of(rt, in, name);
}

constexpr std::array kFilters = {
    Filter{"join", join},
    Filter{"length", length},
    Filter{"count", length},
    Filter{"list", [](R rt, V in, A) { return rt.list(rt.items_of(in)); }},
    Filter{"items", [](R rt, V in, A) { return rt.generator(rt.items_of(pair_list(rt, in))); }},
    Filter{"first", first},
    Filter{"last", last},
    Filter{"reverse", reverse},
    Filter{"sort", sort},
    Filter{"dictsort", dictsort},
    Filter{"groupby", groupby},
    Filter{"batch", batch},
    Filter{"slice", slice},
    Filter{"unique", unique},
    Filter{"min", extreme<false>},
    Filter{"max", extreme<true>},
    Filter{"sum", sum},
    Filter{"map", map},
    Filter{"select", chosen<true, false>},
    Filter{"reject", chosen<false, false>},
    Filter{"selectattr", chosen<true, true>},
    Filter{"rejectattr", chosen<false, true>},
    Filter{"attr", attr},
};

}  // namespace

std::span<const Filter> list_filters() { return kFilters; }

}  // namespace llm::jinja
