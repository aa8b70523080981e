#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/result.h"
#include "tools/llmserve/conversations/request_notes.h"

namespace llm {

/// What OpenAPI says of a value; members in the order in which they were added.
using JsonSchema = OrderedJson;

/// The most levels of nesting of what clients send: schemas of tools.
inline constexpr std::size_t kMostJsonLevels = 64;

/// JSON of at most kMostJsonLevels, with no name twice in an object. Errors: kUsage, for the place
/// of what is no JSON, or the name.
Result<OrderedJson> parse_body(std::string_view text);

/// The value as an error shows it: its JSON, cut.
std::string shown_json(const OrderedJson& value);

/// "path[3]".
std::string at_index(std::string_view path, std::size_t index);

/// kUsage: "found X, need Y".
Error wrong_field(std::string field, const std::string& found, std::string_view need);

/// The fields of a JSON object: what each may be, where its value goes and what is said of it. As
/// an OptionTable is for a command line: the one table reads objects and describes them, so that
/// both agree. A field that is null counts as absent, whatever its name.
class JsonFields {
 public:
  /// Takes a value that is not null. @param path  the field's, for errors
  using Take = std::function<Status(const OrderedJson& value, const std::string& path)>;

  /// What a value does.
  enum class Effect {
    kUsed,
    kIgnored,   ///< nothing, whatever it is
    kSpelling,  ///< what it does in another field
    kNothing,   ///< there are only values that ask for nothing
  };

  struct Field {
    std::string name;
    JsonSchema schema;  ///< of a value that is not null
    Take take;
    std::string need = {};  ///< what must be there; empty: it may be absent
    Effect effect = Effect::kUsed;
    std::string other = {};  ///< of kSpelling: the field that it stands for

    Field& needed(std::string what) {
      need = std::move(what);
      return *this;
    }
  };

  // Each sets *target, whose value before is the default. `text` is the description.
  Field& flag(std::string name, bool* target, std::string_view text = "");
  Field& text(std::string name, std::string* target, std::string_view text = "");
  Field& real(std::string name, float* target, double lowest, double highest,
              std::string_view text = "");
  /// @param target  may be optional
  template <typename T>
  Field& integer(std::string name, T* target, std::int64_t lowest, std::int64_t highest,
                 std::string_view text = "") {
    JsonSchema usual;
    if constexpr (requires { target->has_value(); }) {
      if (*target) usual = **target;
    } else {
      usual = *target;
    }
    return integer_with(
        std::move(name), std::move(usual),
        [target](std::int64_t number) {
          if constexpr (requires { target->has_value(); }) {
            *target = static_cast<typename T::value_type>(number);
          } else {
            *target = static_cast<T>(number);
          }
        },
        lowest, highest, text);
  }
  /// A value of another shape. @param schema  without null
  Field& value(std::string name, JsonSchema schema, Take take, std::string_view text = "");
  /// An object. @param fields  its own
  Field& object(std::string name, JsonFields fields, std::string_view text = "");
  /// There for other servers' sake: only with these values, which change nothing.
  Field& only(std::string name, const OrderedJson& values);
  /// Taken without effect, whatever they are.
  void ignored(std::initializer_list<const char*> names);
  /// Another name for a field of the table. Who gives both gives the same.
  void spelling(std::string name, const std::string& other);
  /// Fields that are not in the table are taken as well: as a field of the table where
  /// is_same_name() says so, else without effect, but for those that seem to be meant for a field
  /// that has one: names of `effective`, names near to one or of such words.
  /// @param notes  what is told of fields without effect
  void tolerate(RequestNotes* notes, const std::set<std::string>& (*effective)()) {
    notes_ = notes;
    effective_ = effective;
  }

  const std::deque<Field>& all() const { return fields_; }

  /// Exactly one of the two is there.
  void either(std::string one, std::string other) { either_ = {std::move(one), std::move(other)}; }

  /// For value(): keeps where it is.
  static Take keep(const OrderedJson** target);

  /// Sets the targets. Errors: kUsage naming the field at `path` ("" or "messages[2].") whose value
  /// is wrong, in the table's order; then one that is not in the table; then one that is needed.
  Status read(const OrderedJson& object, const std::string& path = "") const;
  JsonSchema schema() const;

 private:
  Field& integer_with(std::string name, JsonSchema usual, std::function<void(std::int64_t)> store,
                      std::int64_t lowest, std::int64_t highest, std::string_view text);

  Status read_unknown(const std::string& name, const OrderedJson& value,
                      const std::string& path) const;

  std::deque<Field> fields_;  // a deque: references returned stay valid
  RequestNotes* notes_ = nullptr;
  const std::set<std::string>& (*effective_)() = nullptr;  ///< null: nothing else is taken
  std::pair<std::string, std::string> either_;
};

/// Whether names are one but for case, '-' and '_': "maxTokens", "max_tokens".
bool is_same_name(std::string_view one, std::string_view other);

/// Whether `name` may be a slip for one of `known`: but for case, '-' and '_' it is one, or one
/// letter is other, missing or too many (two, in long names); or has a word as such names have it.
/// @return what is meant; "" for nothing
std::string meant_field(std::string_view name, const std::set<std::string>& known);

/// {"type": "array", "items": items}, of one element or more where it is `filled`.
JsonSchema array_of(JsonSchema items, bool filled = false);

}  // namespace llm
