#pragma once

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
