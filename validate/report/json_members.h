#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/vocab_spec.h"

namespace llm {

// Reading the JSON files that checks are held to. Errors are kMalformed, naming the path of a value
// ("prompts[3].ids[7]"), what was found and what is needed.

Error malformed_json(std::string field, const std::string& found, const std::string& rule);
/// A value for such an error: short, structures by their kind.
std::string shown_json(const nlohmann::json& value);
/// A text that is one JSON object.
Result<nlohmann::json> parse_json_object(std::string_view text);
/// Ids, each a number that a TokenId can hold. @pre array.is_array()
Result<std::vector<TokenId>> token_ids(const nlohmann::json& array, const std::string& field);

/// The members of one JSON object, each wanted of a kind.
class JsonMembers {
 public:
  /// @param path  names the object in errors; empty: the file's own
  JsonMembers(const nlohmann::json& json, std::string path) : json_(json), path_(std::move(path)) {}

  std::string field(std::string_view key) const;
  Result<const nlohmann::json*> member(const char* key, std::string_view rule) const;
  Result<std::string> text(const char* key) const;
  /// 64 lower-case hex digits.
  Result<std::string> sha256(const char* key) const;
  Result<std::size_t> count(const char* key, std::size_t lowest, std::size_t highest) const;
  /// An array of that size, or any but an empty one.
  Result<const nlohmann::json*> array(const char* key, std::optional<std::size_t> size) const;
  static Status check_array(const nlohmann::json& value, const std::string& field,
                            std::optional<std::size_t> size);

 private:
  const nlohmann::json& json_;
  std::string path_;
};

}  // namespace llm
