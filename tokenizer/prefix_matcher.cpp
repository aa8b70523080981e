#include "tokenizer/prefix_matcher.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace llm {
namespace {

unsigned byte_of(char c) { return static_cast<unsigned char>(c); }

/// The first index from `from` on where the two differ or one ends.
std::size_t common_end(std::string_view a, std::string_view b, std::size_t from) {
  const std::size_t end = std::min(a.size(), b.size());
  while (from + 8 <= end && std::memcmp(a.data() + from, b.data() + from, 8) == 0) from += 8;
  while (from < end && a[from] == b[from]) ++from;
  return from;
}

}  // namespace

PrefixMatcher::PrefixMatcher(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  LLM_CHECK(std::ranges::none_of(tokens_, [](const Token& t) { return t.text.empty(); }));
  std::ranges::stable_sort(tokens_, {}, &Token::text);
  const auto [first, last] = std::ranges::unique(tokens_, {}, &Token::text);
  tokens_.erase(first, last);
  for (unsigned byte = 0; byte <= 256; ++byte) {
    const auto at = std::ranges::partition_point(
        tokens_, [byte](const Token& t) { return byte_of(t.text.front()) < byte; });
    begin_[byte] = static_cast<std::uint32_t>(at - tokens_.begin());
  }
}

std::optional<PrefixMatcher::Match> PrefixMatcher::longest_prefix(
    std::string_view text, std::span<const std::string_view> except) const {
  std::optional<Match> longest;
  if (text.empty()) return longest;
  auto fitting =
      std::span(tokens_).subspan(begin_[byte_of(text.front())],
                                 begin_[byte_of(text.front()) + 1] - begin_[byte_of(text.front())]);
  std::size_t agreed = 1;  // bytes that text and all of `fitting` have in common
  while (!fitting.empty()) {
    // What the first and the last have in common with text, all between them have.
    const std::string_view shortest = fitting.front().text;
    agreed =
        std::min(common_end(text, shortest, agreed), common_end(text, fitting.back().text, agreed));
    if (shortest.size() == agreed) {
      if (std::ranges::find(except, shortest) == except.end())
        longest = Match{fitting.front().id, agreed};
      fitting = fitting.subspan(1);
    }
    if (agreed == text.size()) break;
    // Those whose next byte is text's; all are longer than what they agree in.
    const auto same =
        std::ranges::equal_range(fitting, byte_of(text[agreed]), {},
                                 [agreed](const Token& t) { return byte_of(t.text[agreed]); });
    fitting = {same.begin(), same.end()};
    ++agreed;
  }
  return longest;
}

}  // namespace llm
