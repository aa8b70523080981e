#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace llm {

// Reading the JSON files that checks are held to. Errors are kMalformed, naming the path of a value
// ("prompts[3].ids[7]"), what was found and what is needed.

Error malformed_json(std::string field, const std::string& found, const std::string& rule);
/// A value for such an error: short, structures by their kind.
std::string shown_json(const Json& value);
/// A text that is one JSON object. @param field  names it in errors
Result<Json> parse_json_object(std::string_view text, const std::string& field = "JSON");
/// Ids, each a number that a TokenId (tokenizer/vocab_spec.h) can hold. @pre array.is_array()
Result<std::vector<std::int32_t>> token_ids(const Json& array, const std::string& field);

/// The members of one JSON object, each wanted of a kind.
class JsonMembers {
 public:
  /// @param path  names the object in errors; empty: the file's own
  JsonMembers(const Json& json, std::string path) : json_(json), path_(std::move(path)) {}

  std::string field(std::string_view key) const;
  bool has(const char* key) const { return json_.contains(key); }
  Result<const Json*> member(const char* key, std::string_view rule) const;
  Result<std::string> text(const char* key) const;
  /// 64 lower-case hex digits.
  Result<std::string> sha256(const char* key) const;
  Result<std::size_t> count(const char* key, std::size_t lowest, std::size_t highest) const;
  /// A finite number.
  Result<double> number(const char* key) const;
  /// A finite number that is 0 or more.
  Result<double> amount(const char* key) const;
  Result<bool> boolean(const char* key) const;
  Result<const Json*> object(const char* key) const;
  /// An array, which may be empty.
  Result<const Json*> list(const char* key) const;
  /// "format", which must be this one.
  Status format(std::string_view wanted) const;
  /// An array of token ids of that size, or any but an empty one.
  Result<std::vector<std::int32_t>> ids(const char* key, std::optional<std::size_t> size) const;
  /// An array of that size, or any but an empty one.
  Result<const Json*> array(const char* key, std::optional<std::size_t> size) const;
  static Status check_array(const Json& value, const std::string& field,
                            std::optional<std::size_t> size);

 private:
  const Json& json_;
  std::string path_;
};

}  // namespace llm
