#include "tokenizer/sentencepiece/prefix_matcher.h"

#include <algorithm>

#include "base/check.h"

namespace llm {

void PrefixMatcher::add(std::string_view text, TokenId id) {
  LLM_CHECK(!text.empty());
  std::uint32_t node = 0;
  for (const char byte : text) {
    const auto fresh = static_cast<std::uint32_t>(token_at_.size());
    const auto [it, inserted] = child_.try_emplace(edge(node, byte), fresh);
    if (inserted) token_at_.push_back(kNone);
    node = it->second;
  }
  if (token_at_[node] == kNone) token_at_[node] = id;
}

std::optional<PrefixMatcher::Match> PrefixMatcher::longest_prefix(
    std::string_view text, std::span<const std::string_view> except) const {
  std::optional<Match> longest;
  std::uint32_t node = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto it = child_.find(edge(node, text[i]));
    if (it == child_.end()) break;
    node = it->second;
    if (token_at_[node] == kNone) continue;
    if (std::ranges::find(except, text.substr(0, i + 1)) != except.end()) continue;
    longest = Match{token_at_[node], i + 1};
  }
  return longest;
}

}  // namespace llm
