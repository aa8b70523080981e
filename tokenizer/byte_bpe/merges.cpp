#include "tokenizer/byte_bpe/merges.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <tuple>

#include "base/check.h"

namespace llm {
namespace {

constexpr std::int32_t kNone = -1;

std::size_t to_size(std::int32_t i) { return static_cast<std::size_t>(i); }

}  // namespace

MergeTable::MergeTable(const VocabSpec& spec)
    : begin_(spec.tokens.size() + 1, 0), merges_(spec.merges.size()) {
  for (const VocabSpec::Merge& merge : spec.merges) ++begin_[to_size(merge.left) + 1];
  for (std::size_t i = 1; i < begin_.size(); ++i) begin_[i] += begin_[i - 1];
  std::vector<std::uint32_t> free(begin_.begin(), begin_.end() - 1);
  for (std::size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto& [left, right, joined] = spec.merges[rank];
    merges_[free[to_size(left)]++] = {right, static_cast<std::uint32_t>(rank), joined};
  }
  for (std::size_t i = 0; i + 1 < begin_.size(); ++i) {
    const auto of_left = std::span(merges_).subspan(begin_[i], begin_[i + 1] - begin_[i]);
    std::ranges::sort(of_left, {}, [](const Merge& m) { return std::tie(m.right, m.rank); });
  }
}

const MergeTable::Merge* MergeTable::find(TokenId left, TokenId right) const {
  const std::uint32_t begin = begin_[to_size(left)];
  const auto of_left = std::span(merges_).subspan(begin, begin_[to_size(left) + 1] - begin);
  const auto found = std::ranges::lower_bound(of_left, right, {}, &Merge::right);
  return found != of_left.end() && found->right == right ? &*found : nullptr;
}

void Merger::append(std::string_view piece, std::vector<TokenId>& ids) {
  LLM_CHECK(piece.size() < to_size(std::numeric_limits<Index>::max()));
  symbols_.clear();
  queue_.clear();
  for (const char c : piece) {
    const TokenId id = byte_tokens_[static_cast<unsigned char>(c)];
    const auto i = static_cast<Index>(symbols_.size());
    if (id != kNoToken) symbols_.push_back({id, 1, i - 1, i + 1});
  }
  if (symbols_.empty()) return;
  symbols_.back().next = kNone;
  for (Index i = 0; i + 1 < static_cast<Index>(symbols_.size()); ++i) offer(i);
  while (!queue_.empty()) {
    std::ranges::pop_heap(queue_, Pair::later);
    const Pair pair = queue_.back();
    queue_.pop_back();
    join(pair);
  }
  for (Index i = 0; i != kNone; i = symbols_[to_size(i)].next)
    ids.push_back(symbols_[to_size(i)].id);
}

void Merger::offer(Index left) {
  const Symbol& a = symbols_[to_size(left)];
  if (a.next == kNone) return;
  const Symbol& b = symbols_[to_size(a.next)];
  const MergeTable::Merge* merge = merges_.find(a.id, b.id);
  if (merge == nullptr) return;
  queue_.push_back({merge->rank, left, a.size + b.size, merge->joined});
  std::ranges::push_heap(queue_, Pair::later);
}

void Merger::join(const Pair& pair) {
  Symbol& left = symbols_[to_size(pair.left)];
  if (left.size == 0 || left.next == kNone) return;
  Symbol& right = symbols_[to_size(left.next)];
  if (left.size + right.size != pair.size) return;
  left.id = pair.joined;
  left.size = pair.size;
  left.next = right.next;
  right.size = 0;
  if (left.next != kNone) symbols_[to_size(left.next)].previous = pair.left;
  if (left.previous != kNone) offer(left.previous);
  offer(pair.left);
}

}  // namespace llm
