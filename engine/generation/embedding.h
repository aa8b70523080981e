#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/model/hyper_parameters.h"

namespace llm {

/// How the rows of a text become one.
enum class Pooling {
  kMean,  ///< of all
  kLast,  ///< the last token's
};

/// What a file asks for by its key pooling_type; kLast where it asks for nothing.
/// Errors: kUsage for a kind that is not computed here.
Result<Pooling> pooling_of(const HyperParameters& config);

struct EmbeddingOptions {
  Pooling pooling = Pooling::kLast;
  std::size_t dimensions = 0;  ///< leading values of a row that count; 0: all
};

/// The embedding of a text, from its rows of the final norm, which come one by one: pooled, cut,
/// then of length 1 (docs/numerics.md, "Embeddings").
class Embedding {
 public:
  explicit Embedding(const EmbeddingOptions& options) : options_(options) {}

  /// The first position, of a text of `n_tokens`, whose row counts; all behind it do.
  std::size_t first_position(std::size_t n_tokens) const {
    return options_.pooling == Pooling::kMean ? 0 : n_tokens - 1;
  }
  /// The row of the next position. @pre dimensions <= row.size()
  void add(std::span<const float> row);
  /// @pre a row was added. All zeros where the rows are.
  std::vector<float> result() const;

 private:
  EmbeddingOptions options_;
  std::vector<double> sum_;
};

}  // namespace llm
