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
  Values values = {};
  Vector<std::pair<std::string_view, Value>> named = {};  ///< names are the template's
};
using Texts = Vector<Text>;

/// What every part of a render needs: its first error, its line, and how values are made. What is
/// done and held counts in the thread's Meter.
///
/// After the first error everything returns at once with an undefined value; loops over something
/// long ask failed().
class Runtime {
 public:
  static constexpr std::size_t kMaxValueDepth = 100;  ///< of lists and dicts

  explicit Runtime(Meter& meter) : line(meter.line) {}

  bool failed() const { return error_.has_value(); }
  const std::optional<Error>& error() const { return error_; }
  /// The first error counts. Names the line; returns an undefined value.
  Value fail(ErrorCode code, std::string_view message);
  /// What Python would raise as a TypeError, ValueError or UndefinedError.
  Value wrong(std::string_view message) { return fail(ErrorCode::kMalformed, message); }
  Value unsupported(std::string_view what);
  Value too_long(const Text& text);
  /// Fails if `value` is undefined. @return whether it is not
  bool is_there(const Value& value);

  /// Counts steps. @return whether there is no error yet
  bool charge(std::size_t steps = 1) const {
    jinja::charge(steps);
    return !failed();
  }

  Value text(Text text, bool is_safe = false);
  Value text(std::string_view bytes, Tag tag) { return text(Text(bytes, tag)); }
  Value list(Values items, bool is_tuple = false);
  /// What Python's generator would give, all of it.
  Value generator(Values items);
  /// Adds to what becomes a dict. Fails for what is no key, or what none holds.
  void add(DictObject& dict, const Value& key, Value value);
  Value dict(DictObject dict) { return DictPtr(make_counted(std::move(dict))); }
  Value undefined(std::string_view what) const;
  /// Strings of a message's content get the message's tag, all others kContent.
  Value from_json(const OrderedJson& json, Tag tag = kContent, std::size_t depth = 0);

  /// The items that Python iterates over. Fails where it cannot.
  Values items_of(const Value& value);
  /// str(value).
  Text str(const Value& value);
  /// The text of a value that must be one; fails otherwise and returns an empty one.
  const Text& need_text(const Value& value, std::string_view what);
  Int need_int(const Value& value, std::string_view what);

  /// Arguments by place or name, in the order of `names`; null: not given. Fails on others.
  /// @pre `args` outlives what is returned
  std::vector<const Value*> bind(const Args& args, std::initializer_list<std::string_view> names,
                                 std::string_view what);

  /// Fails for what Python cannot hash.
  bool is_key(const Value& key);
  /// Fails for what must not live on in a list, a dict or a namespace, and above kMaxValueDepth.
  bool may_hold(const Value& item, std::size_t& depth);

  int& line;
  std::optional<std::chrono::year_month_day> date;

 private:
  std::optional<Error> error_;
};

/// jinja2's environment.getattr and getitem (with the sandbox's rules).
Value member_of(Runtime& rt, const Value& object, std::string_view name);
Value item_of(Runtime& rt, const Value& object, const Value& key);
/// object[start:stop:step]; undefined bounds are not given.
Value slice_of(Runtime& rt, const Value& object, const Values& bounds);

Value binary(Runtime& rt, std::string_view op, const Value& a, const Value& b);
bool compared(Runtime& rt, std::string_view op, const Value& a, const Value& b);
bool contains(Runtime& rt, const Value& container, const Value& item);
/// text % values.
Value format_percent(Runtime& rt, const Text& format, const Value& values);

Value apply_filter(Runtime& rt, std::string_view name, const Value& input, const Args& args);
bool apply_test(Runtime& rt, std::string_view name, const Value& input, const Args& args);
bool is_filter(std::string_view name);
bool is_test(std::string_view name);

/// self.name(args) for a text, a list or a dict; find_method says which there are.
Value call_method(Runtime& rt, const Value& self, std::string_view name, const Args& args);
/// That name, which outlives all; empty where there is none.
std::string_view find_method(const Value& self, std::string_view name);

/// The environment's functions by name; undefined where there is none.
Value find_function(const Runtime& rt, std::string_view name);
Value call_function(Runtime& rt, std::string_view name, const Args& args);

/// What a message says of a key or an argument.
std::string shown_value(const Value& value);

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
Texts split(const Text& text, std::string_view separator, std::size_t most, bool from_right);
Text replaced(const Text& text, const Text& from, const Text& to, std::size_t most);
enum class Case { kUpper, kLower, kTitle, kCapitalize, kTitleFilter };
/// Changes ASCII letters; others stay as they are.
Text with_case(Text text, Case to);

}  // namespace llm::jinja
