#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/vocab_spec.h"

namespace llm {

/// The merges of a vocabulary, to be asked for a pair of tokens. Immutable.
class MergeTable {
 public:
  struct Merge {
    TokenId right = 0;
    std::uint32_t rank = 0;
    TokenId joined = 0;
  };

  /// Of two merges of one pair the first counts.
  /// @pre check_vocab(spec)
  explicit MergeTable(const VocabSpec& spec);

  /// What the pair becomes, or nullptr.
  /// Cost: a binary search among the merges of `left`, whatever the file has in them.
  const Merge* find(TokenId left, TokenId right) const;

 private:
  std::vector<std::uint32_t> begin_;  ///< by token: the first of its merges as the left one
  std::vector<Merge> merges_;         ///< by left token, then by right token
};

/// Merges the bytes of pieces. Holds no result, only memory from piece to piece.
class Merger {
 public:
  static constexpr TokenId kNoToken = -1;

  /// @param byte_tokens  the token of each byte; kNoToken: it has none, and is dropped
  Merger(const MergeTable& merges, const std::array<TokenId, 256>& byte_tokens)
      : merges_(merges), byte_tokens_(byte_tokens) {}

  /// Appends the ids of a piece. It starts as the tokens of those of its bytes that have one; of
  /// all neighbouring pairs the one whose merge has the lowest rank is joined, the leftmost among
  /// equals, until none is left. Cost: O(n log n) for n bytes, about 30 bytes of memory each.
  /// Source: P. Gage, "A New Algorithm for Data Compression", 1994; R. Sennrich, B. Haddow, A.
  /// Birch, "Neural Machine Translation of Rare Words with Subword Units", 2016.
  /// @pre piece.size() < 2^31
  void append(std::string_view piece, std::vector<TokenId>& ids);

 private:
  using Index = std::int32_t;
  /// A token on its way. Linked by index, so a merge costs O(1); size 0 means merged into its left
  /// neighbour.
  struct Symbol {
    TokenId id = 0;
    std::uint32_t size = 0;  ///< bytes
    Index previous = 0;
    Index next = 0;
  };
  /// Two neighbours that have a merge. Stale once either of them changed, which its size shows:
  /// symbols only grow or vanish.
  struct Pair {
    std::uint32_t rank = 0;
    Index left = 0;
    std::uint32_t size = 0;
    TokenId joined = 0;

    /// Orders the queue: lower rank first, then further left.
    static bool later(const Pair& a, const Pair& b) {
      return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
    }
  };

  void offer(Index left);
  void join(const Pair& pair);

  const MergeTable& merges_;
  const std::array<TokenId, 256>& byte_tokens_;
  std::vector<Symbol> symbols_;
  std::vector<Pair> queue_;  ///< a heap
};

}  // namespace llm
