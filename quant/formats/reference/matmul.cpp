#include "quant/formats/reference/matmul.h"

#include <vector>

#include "base/check.h"
#include "quant/formats/activations.h"
#include "quant/formats/reference/dot.h"

namespace llm::reference {
namespace {

/// Number of tokens, after checking that all sizes agree.
std::size_t check_shapes(const MatrixBytes& w, std::span<const float> x, std::span<float> y) {
  LLM_CHECK(w.n_cols > 0 && w.bytes.size() == w.n_rows * row_bytes(w.type, w.n_cols));
  const std::size_t tokens = x.size() / w.n_cols;
  LLM_CHECK(x.size() == tokens * w.n_cols && y.size() == tokens * w.n_rows);
  return tokens;
}

}  // namespace

void matmul(const MatrixBytes& w, std::span<const float> x, std::span<float> y) {
  const std::size_t tokens = check_shapes(w, x, y);
  const std::size_t stride = row_bytes(w.type, w.n_cols);
  const ActivationFormat format = activation_format(w.type);
  std::vector<std::byte> activations(activation_row_bytes(format, w.n_cols));
  for (std::size_t t = 0; t < tokens; ++t) {
    quantize_activations(format, x.subspan(t * w.n_cols, w.n_cols), activations);
    for (std::size_t r = 0; r < w.n_rows; ++r) {
      y[t * w.n_rows + r] = dot_row(w.type, w.bytes.subspan(r * stride, stride), activations);
    }
  }
}

void matmul_f32(const MatrixBytes& w, std::span<const float> x, std::span<float> y) {
  const std::size_t tokens = check_shapes(w, x, y);
  const std::size_t stride = row_bytes(w.type, w.n_cols);
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t r = 0; r < w.n_rows; ++r) {
      y[t * w.n_rows + r] = dot_row_f32(w.type, w.bytes.subspan(r * stride, stride),
                                        x.subspan(t * w.n_cols, w.n_cols));
    }
  }
}

}  // namespace llm::reference
