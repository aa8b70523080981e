#include "engine/forward/reference/ops.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "quant/contract/arithmetic.h"
#include "quant/formats/activations.h"
#include "quant/formats/reference/dot.h"

namespace llm::reference {
namespace {

using contract::exp;
using contract::LaneSum;

constexpr std::size_t kChunk = contract::kAttentionChunk;

/// Softmax-weighted values of a run of keys, not yet divided: o = sum e_j V_j, l = sum e_j, e_j =
/// exp(s_j - m).
struct Partial {
  float m;
  float l;
  std::vector<float> o;
};

Partial attend_chunk(std::span<const float> q, const KvCache& cache, std::size_t layer,
                     std::size_t kv_head, std::size_t begin, std::size_t end) {
  const std::size_t head_dim = q.size();
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  std::vector<float> e(end - begin);
  for (std::size_t j = begin; j < end; ++j) {
    float dot = 0;
    for (std::size_t d = 0; d < head_dim; ++d) {
      dot = std::fma(q[d], cache.key(layer, kv_head, j, d), dot);
    }
    e[j - begin] = scale * dot;
  }
  Partial part{.m = e[0], .l = 0, .o = std::vector<float>(head_dim, 0.0F)};
  for (const float s : e) part.m = s > part.m ? s : part.m;
  LaneSum sum;
  for (std::size_t j = 0; j < e.size(); ++j) {
    e[j] = exp(e[j] - part.m);
    sum.add(j, e[j]);
  }
  part.l = sum.total();
  for (std::size_t j = begin; j < end; ++j) {
    for (std::size_t d = 0; d < head_dim; ++d) {
      part.o[d] = std::fma(e[j - begin], cache.value(layer, kv_head, j, d), part.o[d]);
    }
  }
  return part;
}

// Rescales both to the larger maximum and adds: the later chunk is the second operand.
void merge(Partial& first, const Partial& second) {
  const float m = second.m > first.m ? second.m : first.m;
  const float a = exp(first.m - m);
  const float b = exp(second.m - m);
  first.l = std::fma(second.l, b, first.l * a);
  for (std::size_t d = 0; d < first.o.size(); ++d) {
    first.o[d] = std::fma(second.o[d], b, first.o[d] * a);
  }
  first.m = m;
}

}  // namespace

void rms_norm(std::span<const float> x, std::span<const float> weight, float eps,
              std::span<float> y) {
  LaneSum sum;
  for (std::size_t i = 0; i < x.size(); ++i) sum.add_product(i, x[i], x[i]);
  const float mean = sum.total() / static_cast<float>(x.size());
  const float s = 1.0F / std::sqrt(mean + eps);
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = (x[i] * s) * weight[i];
}

void matmul(const PackedMatrix& w, Compute compute, std::span<const float> x, std::span<float> y) {
  const std::size_t n_tokens = x.size() / w.n_cols();
  const ActivationFormat format =
      compute == Compute::kInt8 ? activation_format(w.type()) : ActivationFormat::kF32;
  const std::size_t stride = activation_row_bytes(format, w.n_cols());
  std::vector<std::byte> activations(n_tokens * stride);
  for (std::size_t t = 0; t < n_tokens; ++t) {
    quantize_activations(format, x.subspan(t * w.n_cols(), w.n_cols()),
                         std::span(activations).subspan(t * stride, stride));
  }
  std::vector<std::byte> row(row_bytes(w.type(), w.n_cols()));
  for (std::size_t r = 0; r < w.n_rows(); ++r) {
    w.extract_row(r, row);
    for (std::size_t t = 0; t < n_tokens; ++t) {
      y[t * w.n_rows() + r] =
          compute == Compute::kInt8
              ? dot_row(w.type(), row, std::span(activations).subspan(t * stride, stride))
              : dot_row_f32(w.type(), row, x.subspan(t * w.n_cols(), w.n_cols()));
    }
  }
}

void rope(std::span<float> x, std::size_t head_dim, std::span<const float> cos,
          std::span<const float> sin) {
  for (std::size_t head = 0; head < x.size(); head += head_dim) {
    for (std::size_t i = 0; i < cos.size(); ++i) {
      const std::size_t first = head + 2 * i;
      const std::size_t second = first + 1;
      const float x0 = x[first];
      const float x1 = x[second];
      x[first] = std::fma(x0, cos[i], -(x1 * sin[i]));
      x[second] = std::fma(x0, sin[i], x1 * cos[i]);
    }
  }
}

void attend(std::span<const float> q, const KvCache& cache, std::size_t layer, std::size_t kv_head,
            std::size_t position, std::span<float> context) {
  const std::size_t n_keys = position + 1;
  Partial sum = attend_chunk(q, cache, layer, kv_head, 0, std::min(kChunk, n_keys));
  for (std::size_t begin = kChunk; begin < n_keys; begin += kChunk) {
    merge(sum, attend_chunk(q, cache, layer, kv_head, begin, std::min(begin + kChunk, n_keys)));
  }
  for (std::size_t d = 0; d < context.size(); ++d) context[d] = sum.o[d] / sum.l;
}

void silu_mul(std::span<const float> gate, std::span<const float> up, std::span<float> y) {
  for (std::size_t i = 0; i < gate.size(); ++i) {
    y[i] = (gate[i] / (1.0F + exp(-gate[i]))) * up[i];
  }
}

void add(std::span<const float> y, std::span<float> x) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

}  // namespace llm::reference
