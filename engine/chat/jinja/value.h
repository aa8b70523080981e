#pragma once

#include <compare>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "engine/chat/jinja/table.h"
#include "engine/chat/jinja/text.h"

namespace llm::jinja {

/// Wide enough for every integer that JSON readers give, so that it prints as it was.
__extension__ typedef __int128 Int;

class Value;
struct Macro;
struct Loop;

struct Undefined {
  std::shared_ptr<const String> what;  ///< what was not there, for messages; may be null
};
struct None {};
struct TextObject {
  Text text;
  bool is_safe =
      false;  ///< by the filter `safe`: + escapes what is added to it, as MarkupSafe does
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

/// How many lists and dicts lie inside each other.
std::size_t depth_of(const Value& value);

using Values = Vector<Value>;

/// Of tables by values, as Python's dicts: equal numbers of all types are one key.
struct ValueKeys {
  static std::uint32_t hash(const Value& key);
  static std::uint32_t hash(std::string_view key) { return NameKeys::hash(key); }
  static bool same(const Value& stored, const Value& key);
  static bool same(const Value& stored, std::string_view key);
};

struct ListObject {
  Values items;
  bool is_tuple = false;
  bool is_generator = false;  ///< true, and without a length, members and items, as Python's
  std::size_t depth = 1;
  bool is_group = false;  ///< of groupby: a tuple with the members `grouper` and `list`
};
using Pairs = Table<Value, Value, ValueKeys>;
struct DictObject {
  Pairs items;
  std::size_t depth = 1;
};
/// The one thing that changes. None lies in a list, a dict or a namespace, so there are no cycles.
struct NamespaceObject {
  Table<String, Value, NameKeys> items;
};
struct MethodObject {
  Value self;
  std::string_view name;  ///< one that is_method() knows
};
/// A loop as its body sees it.
struct Loop {
  const Values* items;
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
std::string_view undefined_text(const Value& value);

/// Appends str(value). Text keeps its tags, all else is content.
void append_str(const Value& value, Text& out);
/// Appends repr(value).
void append_repr(const Value& value, Text& out);

}  // namespace llm::jinja
