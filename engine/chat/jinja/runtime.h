#pragma once

#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "engine/chat/jinja/value.h"

namespace llm::jinja {

/// Arguments of a call, a filter or a test.
struct Args {
  std::vector<Value> values = {};
  std::vector<std::pair<std::string, Value>> named = {};
};

/// What every part of a render needs: its limits, its first error, and values that count as memory.
///
/// After the first error everything returns at once with an undefined value; loops over something
/// long ask failed().
class Runtime {
 public:
  static constexpr std::size_t kMaxSteps = 10'000'000;
  static constexpr std::size_t kMaxMemory = std::size_t{128} << 20;
  static constexpr std::size_t kMaxDepth = 400;         ///< of evaluations inside each other
  static constexpr std::size_t kMaxValueDepth = 100;    ///< of lists and dicts
  static constexpr std::size_t kMaxWeight = 1'000'000;  ///< of a list or a dict

  bool failed() const { return error_.has_value(); }
  const std::optional<Error>& error() const { return error_; }
  /// The first error counts. Names the line; returns an undefined value.
  Value fail(ErrorCode code, std::string_view message);
  /// What Python would raise as a TypeError, ValueError or UndefinedError.
  Value wrong(std::string_view message) { return fail(ErrorCode::kMalformed, message); }
  Value unsupported(std::string_view what);
  /// Fails if `value` is undefined. @return whether it is not
  bool is_there(const Value& value);

  /// Counts steps of work: one for each node, one for each 64 bytes or 8 items that are gone
  /// through.
  bool charge(std::size_t steps = 1);
  /// Counts output that is kept.
  bool take_memory(std::size_t bytes);
  void give_memory(std::size_t bytes) { memory_.used -= bytes; }

  Value text(Text text, bool is_safe = false);
  Value text(std::string_view bytes, Tag tag) { return text(Text(bytes, tag)); }
  Value list(std::vector<Value> items, bool is_tuple = false);
  /// @pre no two keys are equal
  Value dict(std::vector<std::pair<Value, Value>> items);
  /// Of keys that are equal, the first one with the last value.
  Value unique_dict(std::vector<std::pair<Value, Value>> items);
  Value undefined(std::string what) const;
  /// Strings of a message's content get the message's tag, all others kContent.
  Value from_json(const OrderedJson& json, Tag tag = kContent, std::size_t depth = 0);

  /// The items that Python iterates over. Fails where it cannot.
  std::vector<Value> items_of(const Value& value);
  /// str(value).
  Text str(const Value& value);
  /// The text of a value that must be one; fails otherwise and returns an empty one.
  const Text& need_text(const Value& value, std::string_view what);
  Int need_int(const Value& value, std::string_view what);

  /// Arguments by place or name, in the order of `names`; null: not given. Fails on others.
  /// @pre `args` outlives what is returned
  std::vector<const Value*> bind(const Args& args, std::initializer_list<std::string_view> names,
                                 std::string_view what);

  int line = 1;
  std::optional<std::chrono::year_month_day> date;

 private:
  /// Adds an item to what its list or dict is; fails above the limits.
  bool extend(Extent& extent, const Value& item);

  Memory memory_;
  std::size_t steps_ = 0;
  std::optional<Error> error_;
};

/// jinja2's environment.getattr and getitem (with the sandbox's rules).
Value member_of(Runtime& rt, const Value& object, std::string_view name);
Value item_of(Runtime& rt, const Value& object, const Value& key);
/// object[start:stop:step]; undefined bounds are not given.
Value slice_of(Runtime& rt, const Value& object, const std::vector<Value>& bounds);

Value binary(Runtime& rt, std::string_view op, const Value& a, const Value& b);
bool compared(Runtime& rt, std::string_view op, const Value& a, const Value& b);
bool contains(Runtime& rt, const Value& container, const Value& item);
/// text % values.
Value format_percent(Runtime& rt, const Text& format, const Value& values);

Value apply_filter(Runtime& rt, std::string_view name, const Value& input, const Args& args);
bool apply_test(Runtime& rt, std::string_view name, const Value& input, const Args& args);
bool is_filter(std::string_view name);
bool is_test(std::string_view name);

/// self.name(args) for a text, a list or a dict; is_method says which there are.
Value call_method(Runtime& rt, const Value& self, std::string_view name, const Args& args);
bool is_method(const Value& self, std::string_view name);

/// The environment's functions by name; undefined where there is none.
Value find_function(const Runtime& rt, std::string_view name);
Value call_function(Runtime& rt, std::string_view name, const Args& args);

struct JsonStyle {
  bool ascii = false;
  std::optional<std::string> indent = {};  ///< of a level
  std::string comma = ", ";
  std::string colon = ": ";
  bool sort_keys = false;
};
/// Appends what json.dumps writes.
void append_json(Runtime& rt, const Value& value, const JsonStyle& style, Text& out,
                 std::size_t level = 0);

/// strip, lstrip, rstrip, and the filter trim, by `name`.
Value stripped(Runtime& rt, const Text& self, std::string_view name, const Args& args);
/// The parts of `text` between those of `separator`, at most `most` cuts, from the left or right.
std::vector<Text> split(const Text& text, std::string_view separator, std::size_t most,
                        bool from_right);
Text replaced(const Text& text, const Text& from, const Text& to, std::size_t most);
enum class Case { kUpper, kLower, kTitle, kCapitalize, kTitleFilter };
/// Changes ASCII letters; others stay as they are.
Text with_case(Text text, Case to);

}  // namespace llm::jinja
