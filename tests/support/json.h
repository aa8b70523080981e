#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "base/json.h"
#include "tests/support/catch.h"

namespace llm::test {

/// The test ends unless `text` is one JSON value. May be called from any thread: Catch2 is of one.
inline Json parse_json(std::string_view text) {
  Json json = llm::parse_json(text);
  if (json.is_discarded()) FAIL("no JSON: " << text);
  return json;
}
inline OrderedJson parse_ordered_json(std::string_view text) {
  OrderedJson json = llm::parse_ordered_json(text);
  if (json.is_discarded()) FAIL("no JSON: " << text);
  return json;
}

/// A JSON text in which ' stands for ".
inline Json operator""_j(const char* text, std::size_t size) {
  std::string json(text, size);
  std::ranges::replace(json, '\'', '"');
  return parse_json(json);
}

/// The fields of both; those of `more` count where both have one.
inline Json operator|(Json fields, const Json& more) {
  fields.update(more);
  return fields;
}

/// Where `found` is not as `wanted`, "" where it is. Objects may have further fields.
inline std::string mismatch(const Json& found, const Json& wanted, const std::string& at = "") {
  const bool in_parts = found.type() == wanted.type() && found.size() == wanted.size();
  std::string all;
  if (wanted.is_object() && found.is_object()) {
    for (const auto& [name, value] : wanted.items()) {
      const auto field = found.find(name);
      all += field == found.end() ? at + "/" + name + ": found none\n"
                                  : mismatch(*field, value, at + "/" + name);
    }
  } else if (wanted.is_array() && in_parts) {
    for (std::size_t i = 0; i < wanted.size(); ++i)
      all += mismatch(found[i], wanted[i], at + "/" + std::to_string(i));
  } else if (found != wanted) {
    all = at + ": found " + json_text(found) + ", need " + json_text(wanted) + "\n";
  }
  return all;
}
/// The value, seen to be as `wanted`.
inline const Json& must_match(const Json& found, const Json& wanted) {
  REQUIRE(mismatch(found, wanted) == "");
  return found;
}

/// The document with the value at `pointer` replaced by a JSON text, or removed where that is "".
template <typename AnyJson>
AnyJson with_value(AnyJson json, const std::string& pointer, std::string_view value) {
  const typename AnyJson::json_pointer place(pointer);
  if (!value.empty()) {
    json[place] = AnyJson(parse_json(value));
    return json;
  }
  AnyJson& parent = json[place.parent_pointer()];
  if (parent.is_array()) {
    parent.erase(std::stoul(place.back()));
  } else {
    parent.erase(place.back());
  }
  return json;
}

}  // namespace llm::test
