#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

// nlohmann's parser and printer, compiled once: as templates they cost every source seconds.

namespace llm {

using Json = nlohmann::json;                 ///< members are found by name; printed in its order
using OrderedJson = nlohmann::ordered_json;  ///< members stay in the order of writing

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

/// The one JSON value that `text` is; is_discarded() where it is none.
Json parse_json(std::string_view text);
OrderedJson parse_ordered_json(std::string_view text);

/// `json` as text; bytes that are no UTF-8 become U+FFFD.
/// @param indent  blanks of a level; below 0: all on one line
/// @param ascii   other characters are escaped
std::string json_text(const Json& json, int indent = -1, bool ascii = false);
std::string json_text(const OrderedJson& json, int indent = -1, bool ascii = false);

}  // namespace llm
