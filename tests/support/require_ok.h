#pragma once

#include <utility>

#include "base/result.h"
#include "tests/support/catch.h"

namespace llm::test {

/// The value; the test ends with the error when there is none.
template <typename T>
T require_ok(Result<T> result) {
  if (!result.ok()) FAIL(result.error().to_string());
  return std::move(result).value();
}

/// The error, of this kind and with these words in its text; the test ends otherwise.
template <typename T>
Error must_fail(const Result<T>& result, ErrorCode code, Words words = {}) {
  REQUIRE_FALSE(result.ok());
  INFO(result.error().to_string());
  REQUIRE(result.error().code == code);
  require_words(result.error().to_string(), words);
  return result.error();
}
/// The same of any kind.
template <typename T>
Error must_fail(const Result<T>& result, Words words = {}) {
  REQUIRE_FALSE(result.ok());
  return must_fail(result, result.error().code, words);
}

}  // namespace llm::test
