#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

// nlohmann's parser and printer, compiled once: as templates they cost every source seconds.

namespace llm {

using Json = nlohmann::json;  ///< members are found by name; printed in its order
/// Members stay in the order of writing, and are found by looking at one after the other: what
/// looks for each name of a text of many takes time by its square.
using OrderedJson = nlohmann::ordered_json;

}  // namespace llm

// nlohmann's own frees a value with the help of a list, for which it allocates, in a destructor
// that may not throw: memory that runs out there ends the process. These need none.
template <>
void llm::Json::json_value::destroy(llm::Json::value_t type);
template <>
void llm::OrderedJson::json_value::destroy(llm::OrderedJson::value_t type);

namespace nlohmann {

// The same of nlohmann's own, which make a value of the text.
bool operator==(const llm::Json& value, const char* text) noexcept;
bool operator==(const llm::OrderedJson& value, const char* text) noexcept;

}  // namespace nlohmann

namespace llm {

/// The one JSON value that `text` is; is_discarded() where it is none. Of a name twice in an object
/// the last value counts.
Json parse_json(std::string_view text);
/// Cost: linear, however many names an object has and whoever chose them.
OrderedJson parse_ordered_json(std::string_view text);

/// The same for who wants to know more.
struct ParsedJson {
  OrderedJson value;
  std::optional<std::string> name_twice;  ///< the first name that an object has twice
  std::string fault;                      ///< the parser's words; empty: it is JSON
};
ParsedJson read_ordered_json(std::string_view text);

/// The most brackets that are open at once, outside of strings. Printing and copying a value
/// recurses so often.
std::size_t json_levels(std::string_view text);

/// `json` as text; bytes that are no UTF-8 become U+FFFD.
/// @param indent  blanks of a level; below 0: all on one line
/// @param ascii   other characters are escaped
std::string json_text(const Json& json, int indent = -1, bool ascii = false);
std::string json_text(const OrderedJson& json, int indent = -1, bool ascii = false);

}  // namespace llm
