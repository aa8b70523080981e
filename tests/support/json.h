#pragma once

#include <string_view>

#include "base/json.h"
#include "tests/support/catch.h"

namespace llm::test {

/// The test ends unless `text` is one JSON value.
inline Json parse_json(std::string_view text) {
  Json json = llm::parse_json(text);
  CAPTURE(text);
  REQUIRE_FALSE(json.is_discarded());
  return json;
}
inline OrderedJson parse_ordered_json(std::string_view text) {
  OrderedJson json = llm::parse_ordered_json(text);
  CAPTURE(text);
  REQUIRE_FALSE(json.is_discarded());
  return json;
}

}  // namespace llm::test
