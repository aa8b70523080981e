#pragma once

#include "tests/support/test.h"
#include "validate/report/report.h"

namespace llm::test {

/// The results that did not pass: name, colon, detail.
inline std::vector<std::string> failed(const std::vector<CheckResult>& results) {
  std::vector<std::string> lines;
  for (const CheckResult& result : results)
    if (!result.passed) lines.push_back(result.name + ": " + result.detail);
  return lines;
}

/// There are some, and all of them passed.
inline void check_passed(const std::vector<CheckResult>& results) {
  CHECK_FALSE(results.empty());
  CHECK(failed(results) == std::vector<std::string>());
}

/// The result whose name has these words.
inline const CheckResult& named(const std::vector<CheckResult>& results, std::string_view words) {
  const auto found = std::ranges::find_if(results, [&](const CheckResult& result) {
    return result.name.find(words) != std::string::npos;
  });
  if (found == results.end()) FAIL("no result " << words);
  return *found;
}

}  // namespace llm::test
