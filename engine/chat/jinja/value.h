#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/chat/jinja/text.h"

namespace llm::jinja {

/// Wide enough for every integer that JSON readers give, so that it prints as it was.
__extension__ typedef __int128 Int;

/// What live values take together; a render has one, which outlives them.
struct Memory {
  std::size_t used = 0;
};

/// Some bytes of a Memory, given back in the end.
class Lease {
 public:
  Lease() = default;
  Lease(Memory* memory, std::size_t n) : memory_(memory), n_(n) { memory->used += n; }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() {
    if (memory_) memory_->used -= n_;
  }

 private:
  Memory* memory_ = nullptr;
  std::size_t n_ = 0;
};

/// What stands with `name` in a list of pairs; null: the name is not there.
auto* find_in(auto& pairs, std::string_view name) {
  const auto at = std::ranges::find_if(pairs, [&](const auto& p) { return p.first == name; });
  return at == pairs.end() ? nullptr : &at->second;
}
/// Replaces what stands with `name`, or appends it.
void set_in(auto& pairs, std::string_view name, auto value) {
  if (auto* found = find_in(pairs, name)) {
    *found = std::move(value);
  } else {
    pairs.emplace_back(name, std::move(value));
  }
}

class Value;
struct Macro;
struct Loop;

struct Undefined {
  std::shared_ptr<const std::string> what;  ///< what was not there, for messages; may be null
};
struct None {};
struct TextObject {
  Text text;
  bool is_safe =
      false;  ///< by the filter `safe`: + escapes what is added to it, as MarkupSafe does
  Lease lease = {};
};
struct ListObject;
struct DictObject;
struct NamespaceObject;
struct MethodObject;
/// A function of the environment, by its name.
struct Function {
  std::string_view name;
};

using TextPtr = std::shared_ptr<const TextObject>;
using ListPtr = std::shared_ptr<const ListObject>;
using DictPtr = std::shared_ptr<const DictObject>;
using NamespacePtr = std::shared_ptr<NamespaceObject>;
using MethodPtr = std::shared_ptr<const MethodObject>;

/// A value of Python's as templates see them. Lists and dicts never change: the sandbox forbids it.
class Value : public std::variant<Undefined, None, bool, Int, double, TextPtr, ListPtr, DictPtr,
                                  NamespacePtr, MethodPtr, Function, const Macro*, const Loop*> {
 public:
  using variant::variant;
  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(*this);
  }
  template <typename T>
  const T* get() const {
    return std::get_if<T>(this);
  }
  const Text* text() const;
  const ListObject* list() const;
  const DictObject* dict() const;
  /// bool, int or float, as Python's numbers.
  bool is_number() const { return is<bool>() || is<Int>() || is<double>(); }
  /// bool or int.
  std::optional<Int> integer() const;
  double number() const;  ///< @pre is_number()
};

/// How much a value is: `weight` bounds the cost of going through all of it, in steps.
struct Extent {
  std::size_t depth = 0;
  std::size_t weight = 1;
};
Extent extent_of(const Value& value);

struct ListObject {
  std::vector<Value> items;
  bool is_tuple = false;
  Extent extent = {};
  Lease lease = {};
};
struct DictObject {
  std::vector<std::pair<Value, Value>> items;
  Extent extent = {};
  Lease lease = {};
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
};
/// The one thing that changes. None lies in a list, a dict or a namespace, so there are no cycles.
struct NamespaceObject {
  std::vector<std::pair<std::string, Value>> items;
  const Value* find(std::string_view name) const;
};
struct MethodObject {
  Value self;
  std::string name;
};
/// A loop as its body sees it.
struct Loop {
  const std::vector<Value>* items;
  std::size_t index = 0;
};

/// bool(value).
bool is_true(const Value& value);
/// a == b.
bool is_equal(const Value& a, const Value& b);
/// How a and b are ordered; nothing where Python raises TypeError (or for NaN).
std::optional<std::partial_ordering> compare(const Value& a, const Value& b);
/// type(value).__name__.
std::string_view type_name(const Value& value);
/// A float as repr() has it.
std::string float_text(double value);
std::string int_text(Int value);
/// What a message calls a value that is not there.
std::string undefined_text(const Value& value);

/// Appends str(value). Text keeps its tags, all else is content.
void append_str(const Value& value, Text& out);
/// Appends repr(value).
void append_repr(const Value& value, Text& out);

}  // namespace llm::jinja
