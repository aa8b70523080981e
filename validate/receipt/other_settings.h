#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"
#include "validate/receipt/receipt.h"

namespace llm {

/// The first rows that a receipt's tokens were drawn from.
struct DrawnRows {
  std::size_t n_vocab = 0;
  std::vector<float> logits;  ///< [rows, n_vocab]; row i is what ids[i] was drawn from

  std::size_t size() const { return logits.size() / n_vocab; }
  std::span<const float> row(std::size_t i) const {
    return std::span(logits).subspan(i * n_vocab, n_vocab);
  }
};

/// Settings that draw the receipt's tokens from these rows when put in place of the receipt's,
/// each alone: "temperature 0.8". Usual values are tried, and seeds below 10,000; of each setting
/// the first that fits is named. Empty: none, or no row.
/// Cost: mostly one draw a value, 13,000 values.
std::vector<std::string> settings_that_draw(const Receipt& receipt, const DrawnRows& rows,
                                            const Tokenizer& tokenizer);

}  // namespace llm
