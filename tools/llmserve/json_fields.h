#ifndef LLM_TOOLS_LLMSERVE_JSON_FIELDS_H_
#define LLM_TOOLS_LLMSERVE_JSON_FIELDS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/result.h"

namespace llm {

/// Of requests. Not ordered_json, whose members are searched one by one: many names would be slow.
using Json = nlohmann::json;

/// JSON of at most that many levels of nesting, with no name twice in an object.
/// Errors: kUsage, for the place of what is no JSON, or the name.
Result<Json> parse_json(std::string_view text, std::size_t most_levels);

/// The members of an object, read one by one. The first fault is kept: read a run of them, then ask
/// finish(). A member that is null counts as absent, whatever its name. Errors are kUsage; their
/// field is the member's name behind `path`.
class JsonFields {
 public:
  /// @param path  where the object is: "" or "messages[2]."
  explicit JsonFields(const Json& object, std::string path = "");

  /// The member, or nullptr.
  const Json* find(std::string_view name);

  void flag(std::string_view name, bool& value);
  void text(std::string_view name, std::string& value);
  void real(std::string_view name, float& value, double lowest, double highest);
  template <typename T>
  void integer(std::string_view name, T& value, std::int64_t lowest, std::int64_t highest) {
    if (const auto found = integer_of(name, lowest, highest)) value = static_cast<T>(*found);
  }
  template <typename T>
  void integer(std::string_view name, std::optional<T>& value, std::int64_t lowest,
               std::int64_t highest) {
    if (const auto found = integer_of(name, lowest, highest)) value = static_cast<T>(*found);
  }
  /// A member that is there for other servers' sake: only with these values, which change nothing.
  /// @param values  an array
  void only(std::string_view name, const Json& values);

  /// Keeps a fault of the member, unless there was one before.
  void fail(std::string_view name, std::string found, std::string_view need);
  void fail(Error error);
  bool ok() const { return !error_.has_value(); }

  /// The first fault; then that of a member that nobody asked for and that is not null.
  Status finish();

 private:
  std::optional<std::int64_t> integer_of(std::string_view name, std::int64_t lowest,
                                         std::int64_t highest);

  const Json& object_;
  std::string path_;
  std::set<std::string, std::less<>> known_;
  std::optional<Error> error_;
};

/// The value as an error shows it: its JSON, cut.
std::string shown_json(const Json& value);

}  // namespace llm

#endif  // LLM_TOOLS_LLMSERVE_JSON_FIELDS_H_
