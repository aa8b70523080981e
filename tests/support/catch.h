#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

// The one place that knows which Catch2 is installed: v2 on Debian 12, v3 elsewhere.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

namespace llm::test {

using Words = std::initializer_list<std::string_view>;

/// The test ends unless all of these stand in the text.
inline void require_words(const std::string& text, Words words) {
  for (const auto word : words) REQUIRE_THAT(text, Catch::Matchers::Contains(std::string(word)));
}

}  // namespace llm::test
