#include "engine/forward/reference/ops.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "quant/formats/activations.h"
#include "quant/formats/reference/by_fma.h"
#include "quant/formats/reference/dot.h"
#include "quant/numerics/arithmetic.h"

namespace llm::reference {
namespace {

using contract::exp;
using contract::LaneSum;

constexpr std::size_t kChunk = contract::kAttentionChunk;

/// m and l of a chunk's keys from `first` on; their scores become e_j. o is 0.
[[gnu::always_inline]] inline AttentionPartial softmax(std::size_t first, std::span<float> scores,
                                                       std::size_t head_dim) {
  AttentionPartial part{.m = scores[0], .l = 0, .o = std::vector<float>(head_dim, 0.0F)};
  for (const float s : scores) part.m = s > part.m ? s : part.m;
  LaneSum sum;
  for (std::size_t j = 0; j < scores.size(); ++j) {
    scores[j] = exp(scores[j] - part.m);
    sum.add(first + j, scores[j]);
  }
  part.l = sum.total();
  return part;
}

/// Weights of keys as integers up to 32767, relative to the largest scale of one group of V.
struct IntegerWeights {
  std::vector<std::int32_t> p;
  float step;  ///< D / 32767
};
IntegerWeights integer_weights(std::span<const float> e, const CodedRows& values,
                               std::size_t group) {
  constexpr auto kMost = static_cast<float>(contract::kMaxAttentionWeight);
  constexpr float kShift = 0x1.8p+23F;  // adding it rounds to an integer, half to even
  std::uint32_t bits = 0;
  for (std::size_t j = 0; j < e.size(); ++j)
    bits = std::max(bits, std::bit_cast<std::uint32_t>(values.scale(j, group)) & 0x7FFF'FFFFU);
  const auto largest = std::bit_cast<float>(bits);
  const float inverse = kMost / largest;
  IntegerWeights out{.p = std::vector<std::int32_t>(e.size()), .step = largest / kMost};
  if (!std::isfinite(largest)) return out;
  if (!std::isfinite(inverse)) return {.p = std::move(out.p), .step = 0};
  for (std::size_t j = 0; j < e.size(); ++j) {
    if (std::isnan(e[j])) continue;  // l is NaN, and so is o
    const float r = values.scale(j, group) * inverse;
    out.p[j] = static_cast<std::int32_t>(std::fma(e[j], r, kShift) - kShift);
  }
  return out;
}

}  // namespace

void rms_norm(std::span<const float> x, std::span<const float> weight, float eps,
              std::span<float> y) {
  LaneSum sum;
  for (std::size_t i = 0; i < x.size(); ++i) sum.add_product(i, x[i], x[i]);
  const float mean = sum.total() / static_cast<float>(x.size());
  // mean - mean is 0, or NaN where the squares overflow: 1 / inf would make the row a silent 0.
  const float s = 1.0F / std::sqrt(mean + eps) + (mean - mean);
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = (x[i] * s) * weight[i];
}

void norm_heads(std::span<float> x, std::span<const float> weight, float eps) {
  for (std::size_t head = 0; head < x.size(); head += weight.size())
    rms_norm(x.subspan(head, weight.size()), weight, eps, x.subspan(head, weight.size()));
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
  std::vector<float> products(n_tokens);
  for (std::size_t r = 0; r < w.n_rows(); ++r) {
    w.extract_row(r, row);
    if (compute == Compute::kInt8) {
      dot_row(w.type(), row, activations, products);
    } else {
      dot_row_f32(w.type(), row, x, products);
    }
    for (std::size_t t = 0; t < n_tokens; ++t) y[t * w.n_rows() + r] = products[t] * w.scale_of(r);
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

AttentionPartial attend_chunk(std::span<const float> q, const ScoreRule& rule, std::size_t first,
                              std::span<const float> keys, std::span<const float> values) {
  return by_fma([&]() LLM_BY_FMA {
    const std::size_t head_dim = q.size();
    const std::size_t n = keys.size() / head_dim;
    std::vector<float> e(n);
    for (std::size_t j = 0; j < n; ++j) {
      float dot = 0;
      for (std::size_t d = 0; d < head_dim; ++d) dot = std::fma(q[d], keys[j * head_dim + d], dot);
      e[j] = rule.of(dot);
    }
    AttentionPartial part = softmax(first, e, head_dim);
    for (std::size_t j = 0; j < n; ++j)
      for (std::size_t d = 0; d < head_dim; ++d)
        part.o[d] = std::fma(e[j], values[j * head_dim + d], part.o[d]);
    return part;
  });
}

void CodedRows::add(std::span<const float> x) {
  const std::size_t row = size();
  codes.resize(codes.size() + head_dim);
  for (std::size_t g = 0; g < n_groups(); ++g) {
    const std::size_t begin = g * contract::kBlock;
    scales.push_back(quantize_codes(x.subspan(begin, group_end(g) - begin),
                                    codes.data() + row * head_dim + begin));
  }
}

void read_row(const KvRow& row, CodedRows& keys, CodedRows& values) {
  for (std::size_t d = 0; d < keys.head_dim; ++d) {
    keys.codes.push_back(row.key_code(d));
    values.codes.push_back(row.value_code(d));
  }
  for (std::size_t g = 0; g < keys.n_groups(); ++g) {
    keys.scales.push_back(row.key_scale(g));
    values.scales.push_back(row.value_scale(g));
  }
}

AttentionPartial attend_chunk(std::span<const float> q, const ScoreRule& rule, std::size_t first,
                              const CodedRows& keys, const CodedRows& values) {
  const std::size_t head_dim = q.size();
  const std::size_t n = keys.size();
  CodedRows query{head_dim};
  query.add(q);
  std::vector<float> e(n);
  AttentionPartial part = by_fma([&]() LLM_BY_FMA {
    for (std::size_t j = 0; j < n; ++j) {
      float dot = 0;
      for (std::size_t g = 0; g < query.n_groups(); ++g) {
        std::int32_t isum = 0;
        for (std::size_t d = g * contract::kBlock; d < query.group_end(g); ++d)
          isum += query.codes[d] * keys.codes[j * head_dim + d];
        dot = std::fma(static_cast<float>(isum), query.scale(0, g) * keys.scale(j, g), dot);
      }
      e[j] = rule.of(dot);
    }
    return softmax(first, e, head_dim);
  });
  for (std::size_t g = 0; g < values.n_groups(); ++g) {
    const IntegerWeights weights = integer_weights(e, values, g);
    const float step = weights.step + (part.l - part.l);  // NaN where a score was NaN
    for (std::size_t d = g * contract::kBlock; d < values.group_end(g); ++d) {
      std::int32_t isum = 0;
      for (std::size_t j = 0; j < n; ++j) isum += weights.p[j] * values.codes[j * head_dim + d];
      part.o[d] = static_cast<float>(isum) * step;
    }
  }
  return part;
}

void merge(AttentionPartial& sum, const AttentionPartial& later) {
  by_fma([&]() LLM_BY_FMA {
    const float m = later.m > sum.m ? later.m : sum.m;
    const float a = exp(sum.m - m);
    const float b = exp(later.m - m);
    sum.l = std::fma(later.l, b, sum.l * a);
    for (std::size_t d = 0; d < sum.o.size(); ++d) sum.o[d] = std::fma(later.o[d], b, sum.o[d] * a);
    sum.m = m;
  });
}

void finish(const AttentionPartial& sum, std::span<float> context) {
  for (std::size_t d = 0; d < context.size(); ++d) context[d] = sum.o[d] / sum.l;
}

void attend(std::span<const float> q, const ScoreRule& rule, const SequenceState& cache,
            std::size_t layer, std::size_t kv_head, std::size_t position, std::size_t window,
            const float* sink, std::span<float> context) {
  const std::size_t n_keys = position + 1;
  const std::size_t first_key = window == 0 || window > n_keys ? 0 : n_keys - window;
  const auto attend_to_chunk = [&](std::size_t chunk) {
    const std::size_t begin = std::max(chunk * kChunk, first_key);
    const std::size_t end = std::min((chunk + 1) * kChunk, n_keys);
    if (cache.pool().type() == KvType::kQ8) {
      CodedRows keys{q.size()};
      CodedRows values{q.size()};
      for (std::size_t j = begin; j < end; ++j)
        read_row(cache.row(layer, kv_head, j), keys, values);
      return attend_chunk(q, rule, begin % kChunk, keys, values);
    }
    std::vector<float> keys;
    std::vector<float> values;
    for (std::size_t j = begin; j < end; ++j) {
      const KvRow row = cache.row(layer, kv_head, j);
      for (std::size_t d = 0; d < q.size(); ++d) {
        keys.push_back(row.key(d));
        values.push_back(row.value(d));
      }
    }
    return attend_chunk(q, rule, begin % kChunk, keys, values);
  };
  std::size_t chunk = first_key / kChunk;
  AttentionPartial sum = attend_to_chunk(chunk);
  while (++chunk * kChunk < n_keys) merge(sum, attend_to_chunk(chunk));
  if (sink != nullptr) merge(sum, {.m = *sink, .l = 1, .o = std::vector<float>(q.size(), 0.0F)});
  finish(sum, context);
}

void activate(Activation kind, std::span<const float> gate, std::span<const float> up,
              std::span<float> y) {
  for (std::size_t i = 0; i < gate.size(); ++i) y[i] = contract::activate(kind, gate[i], up[i]);
}

void scale(std::span<float> x, float factor) {
  for (float& value : x) value *= factor;
}

void axpy(float a, std::span<const float> x, std::span<float> y) {
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = std::fma(a, x[i], y[i]);
}

void add(std::span<const float> y, std::span<float> x, float scale) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i] * scale;
}

}  // namespace llm::reference
