#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace llm {

/// Types of JSON values, as bits. Those of "number" are kInteger | kFraction.
enum JsonType : unsigned {
  kNull = 1,
  kBoolean = 2,
  kInteger = 4,
  kFraction = 8,
  kString = 16,
  kArray = 32,
  kObject = 64,
  kAllTypes = 127,
};

/// kUsage: what stands at that JSON pointer is not what is needed.
Error wrong(std::string pointer, std::string_view need);
/// The result, its error's field, a keyword or a pointer, behind `path`.
template <typename T>
Result<T> below(const std::string& path, Result<T> result) {
  if (result.ok()) return result;
  Error error = std::move(result).error();
  const bool is_below = error.field.empty() || error.field.starts_with('/');
  error.field = path + (is_below ? "" : "/") + error.field;
  return error;
}
/// A name as a part of a JSON pointer.
std::string pointer_part(std::string_view name);

/// How many there may be.
struct Counts {
  std::int64_t least = 0;
  std::int64_t most = -1;  ///< below 0: any number
  bool any() const { return least > 0 || most >= 0; }
};

/// A schema's keywords, all of which are known. At most one of them is an operation ($ref, const,
/// enum, anyOf, oneOf, allOf), which stands alone, but for a type beside const and enum.
class Keywords {
 public:
  /// @param schema  an object, which outlives this. Errors: kUsage naming a keyword that is not
  /// enforced, there or anywhere.
  static Result<Keywords> read(const OrderedJson& schema, const std::string& path);

  std::string_view operation() const { return operation_; }
  const OrderedJson* operand() const { return find(operation_); }  ///< null without an operation
  /// What values there may be: by "type", or else by the types that the keywords are of.
  unsigned types() const { return types_; }
  bool any() const { return !found_.empty(); }  ///< keywords besides annotations

  const OrderedJson* find(std::string_view name) const;
  /// An object that is there and not empty, or what is wrongly there in its place.
  const OrderedJson* members(std::string_view name) const;
  // Errors: kUsage naming the keyword.
  Result<Counts> counts(std::string_view least, std::string_view most,
                        const std::string& path) const;
  Result<bool> flag(std::string_view name, const std::string& path) const;
  Result<std::vector<std::string>> names(std::string_view name, const std::string& path) const;

 private:
  std::map<std::string_view, const OrderedJson*> found_;
  std::string_view operation_;
  unsigned types_ = kAllTypes;
};

/// The type of a value: one bit.
unsigned type_of(const OrderedJson& value);
/// Whether every reader of JSON sees the same value.
bool is_exact(const OrderedJson& value);

/// What "$ref" leads to; null: nothing.
using Resolve = std::function<const OrderedJson*(const OrderedJson& reference)>;
/// Types that a schema allows, and perhaps more.
unsigned types_of(const OrderedJson& schema, const Resolve& resolve);
/// Whether no value is of both schemas, as far as types, constants, and the constants of required
/// properties say it.
bool are_apart(const OrderedJson& one, const OrderedJson& other, const Resolve& resolve);

/// The pattern of a "format", each of whose texts is of that format; nothing for an unknown one.
std::optional<std::string> format_pattern(std::string_view format);
std::string format_names();

}  // namespace llm
