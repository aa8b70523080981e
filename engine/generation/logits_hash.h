#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>
#include <string>

#include "base/sha256.h"

namespace llm {

static_assert(std::endian::native == std::endian::little);  // logits are hashed as they stand

/// SHA-256 over the rows of logits of a text, as raw little-endian f32: over all rows that come,
/// and over those that tokens were drawn from with the last token's own. The first depends on where
/// a cached prefix ended, the second on the text alone. Cost: where they are the same, of one.
class LogitsHash {
 public:
  /// @param first_drawn  position whose logits the first token is drawn from
  /// @param first  position of the first row that comes
  LogitsHash(std::size_t n_vocab, std::size_t first_drawn, std::size_t first)
      : n_vocab_(n_vocab),
        first_drawn_(first_drawn),
        has_more_(first < first_drawn),
        next_(first) {}

  /// @param rows  [rows, n_vocab], of the positions behind those before
  void add(std::span<const float> rows) {
    if (has_more_) all_.update(std::as_bytes(rows));
    const std::size_t n_rows = rows.size() / n_vocab_;
    const std::size_t before = std::min(n_rows, first_drawn_ - std::min(first_drawn_, next_));
    drawn_.update(std::as_bytes(rows.subspan(before * n_vocab_)));
    next_ += n_rows;
  }
  std::string all() const { return (has_more_ ? all_ : drawn_).hex(); }
  std::string drawn() const { return drawn_.hex(); }

 private:
  std::size_t n_vocab_;
  std::size_t first_drawn_;
  bool has_more_;     ///< rows than those that were drawn from
  std::size_t next_;  ///< position of the next row
  Sha256 all_;
  Sha256 drawn_;
};

}  // namespace llm
