#pragma once

#include <array>
#include <cstddef>

#include "tokenizer/vocab_spec.h"

namespace llm {

/// Notices a reply that goes round in circles: its last kTokens tokens each equal the one that
/// stands 1 to kLongest tokens before, always as many.
class LoopDetector {
 public:
  static constexpr std::size_t kLongest = 64;
  static constexpr std::size_t kTokens = 256;

  /// The next token of the reply. Cost: kLongest comparisons.
  void add(TokenId id) {
    for (std::size_t period = 1; period <= kLongest; ++period) {
      const bool repeats = n_ >= period && last_[(n_ - period) % kLongest] == id;
      std::size_t& run = runs_[period - 1];
      run = repeats ? run + 1 : 0;
      if (run == kTokens && period_ == 0) period_ = period;
    }
    last_[n_++ % kLongest] = id;
  }
  /// How many tokens repeat; 0: no loop so far.
  std::size_t period() const { return period_; }

 private:
  std::array<TokenId, kLongest> last_{};
  std::array<std::size_t, kLongest> runs_{};
  std::size_t n_ = 0;
  std::size_t period_ = 0;
};

}  // namespace llm
