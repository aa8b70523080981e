#include "tests/support/test.h"
#include "validate/outputs/quality/text_windows.h"

namespace llm::test {
namespace {

using Ids = std::vector<TokenId>;

Ids numbers(TokenId n) {
  Ids ids(static_cast<std::size_t>(n));
  std::iota(ids.begin(), ids.end(), 10);
  return ids;
}

TEST_CASE("windows over a whole text score every token once, from BOS", "[quality]") {
  const auto windows = require_ok(token_windows(numbers(7), 1, {.window = 3}));
  REQUIRE(windows.size() == 3);
  CHECK(windows[0].inputs == Ids{1, 10, 11});
  CHECK(windows[0].targets == Ids{10, 11, 12});
  CHECK(windows[1].inputs == Ids{1, 13, 14});
  CHECK(windows[1].targets == Ids{13, 14, 15});
  CHECK(windows[2].inputs == Ids{1});
  CHECK(windows[2].targets == Ids{16});
  CHECK(count_targets(windows) == 7);
}

TEST_CASE("without BOS the first token of a text is context only", "[quality]") {
  const auto windows = require_ok(token_windows(numbers(5), std::nullopt, {.window = 3}));
  REQUIRE(windows.size() == 2);
  CHECK(windows[0].inputs == Ids{10, 11, 12});
  CHECK(windows[0].targets == Ids{11, 12, 13});
  CHECK(windows[1].inputs == Ids{13});
  CHECK(windows[1].targets == Ids{14});
}

TEST_CASE("drawn windows have full length, stay inside and follow the seed", "[quality]") {
  const auto bos = GENERATE(std::optional<TokenId>(1), std::optional<TokenId>());
  const Ids text = numbers(12);
  const WindowOptions options{.window = 4, .sample = 200, .seed = 3};
  const auto windows = require_ok(token_windows(text, bos, options));
  REQUIRE(windows.size() == 200);
  std::set<TokenId> starts;
  for (const TextWindow& window : windows) {
    REQUIRE(window.inputs.size() == 4);
    REQUIRE(window.targets.size() == 4);
    CHECK(window.targets.back() < 22);
    CHECK(window.targets[0] + 3 == window.targets[3]);
    starts.insert(window.targets[0]);
  }
  CHECK(starts.size() == (bos ? 9 : 8));  // every possible start
  const auto again = token_windows(text, bos, options);
  const auto other = token_windows(text, bos, {.window = 4, .sample = 200, .seed = 4});
  bool same = true;
  for (std::size_t i = 0; i < 200; ++i) {
    CHECK((*again)[i].targets == windows[i].targets);
    same = same && (*other)[i].targets == windows[i].targets;
  }
  CHECK_FALSE(same);
}

TEST_CASE("a text too short for a window is refused with both numbers", "[quality]") {
  CHECK_FALSE(token_windows({}, 1, {.window = 3}).ok());
  CHECK(token_windows(numbers(1), 1, {.window = 3}).ok());
  CHECK_FALSE(token_windows(numbers(1), std::nullopt, {.window = 3}).ok());
  const Error refused =
      must_fail(token_windows(numbers(3), 1, {.window = 4, .sample = 2}), ErrorCode::kUsage);
  CHECK(refused.message == "found 3 tokens, need at least 4");
}

}  // namespace
}  // namespace llm::test
