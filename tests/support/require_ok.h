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

}  // namespace llm::test
