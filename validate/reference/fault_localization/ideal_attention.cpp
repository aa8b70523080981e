#include <algorithm>
#include <cmath>
#include <optional>

#include "validate/reference/fault_localization/ideal_ops.h"

namespace llm {
namespace {

/// Of the error that a weight is expected to have: what may lie between it and a tie.
constexpr double kTieUnits = 4;
/// Weights that may turn at a tie in one direction: n of them change a result by n^2 times the
/// square of one.
constexpr double kAlike = 4;
/// Of docs/numerics.md, which this repeats: keys of a chunk, dims that share a scale, the largest
/// weight of a key.
constexpr std::size_t kChunk = 256;
constexpr std::size_t kGroup = 32;
constexpr float kMostWeight = 32767;

/// K or V of every position as attention reads them.
struct Cached {
  std::size_t features;
  std::vector<double> values;  ///< (positions, features)
  // Of q8:
  std::vector<double> codes = {};  ///< (positions, features)
  std::vector<float> steps = {};   ///< (positions, groups of all heads)
};

Cached as_cached(const TapMatrix& x, KvType kv, std::size_t head_dim) {
  Cached out{.features = x.features, .values = {x.values.begin(), x.values.end()}};
  if (kv == KvType::kF16) std::ranges::transform(x.values, out.values.begin(), round_to_half);
  if (kv != KvType::kQ8) return out;
  for (std::size_t at = 0; at < x.values.size(); at += head_dim) {
    for (std::size_t d = 0; d < head_dim; d += kGroup) {
      const RoundedGroup group =
          round_group(std::span(x.values).subspan(at + d, std::min(kGroup, head_dim - d)));
      out.steps.push_back(group.step);
      for (std::size_t i = 0; i < group.codes.size(); ++i)
        out.values[at + d + i] = group.codes[i] * static_cast<double>(group.step);
      out.codes.insert(out.codes.end(), group.codes.begin(), group.codes.end());
    }
  }
  return out;
}

/// One head of one token over the keys it sees.
struct Head {
  const Cached& keys;
  const Cached& values;
  std::size_t kv_head;
  std::size_t first_key;  ///< position of key 0
  std::size_t n_keys;
  std::size_t dim;
  double scale;  ///< of scores
  double cap;    ///< likewise; 0: none
  std::optional<double> sink;

  std::size_t at(std::size_t j) const { return (first_key + j) * keys.features + kv_head * dim; }
  std::size_t n_groups() const { return (dim + kGroup - 1) / kGroup; }
  float step(std::size_t j, std::size_t group) const {
    return values.steps[((first_key + j) * (keys.features / dim) + kv_head) * n_groups() + group];
  }
};

/// What evaluation in f32 may add to a result, squared.
struct Noise {
  double variance = 0;
  double flips = 0;  ///< of q8's weights that are so near a tie that either neighbour is right
};

/// Scores, and by how many units each may be off: by the roundings of its chain of n_terms, and of
/// itself relative to the largest one.
struct Scores {
  std::vector<double> value;
  std::vector<double> error;
};
Scores scores_of(const Head& head, const std::vector<double>& query, std::size_t n_terms) {
  const double scale = head.scale;
  Scores out;
  for (std::size_t j = 0; j < head.n_keys; ++j) {
    const double* key = &head.keys.values[head.at(j)];
    const double score = scale * dot(query.data(), key, head.dim);
    out.value.push_back(head.cap > 0 ? head.cap * std::tanh(score / head.cap) : score);
    double magnitude = 0;
    for (std::size_t d = 0; d < head.dim; ++d) magnitude += std::abs(query[d] * key[d]);
    out.error.push_back(std::sqrt(static_cast<double>(n_terms)) * scale * magnitude +
                        std::abs(score) + 2 * head.cap);
  }
  return out;
}

/// Softmax of the scores and of the head's sink.
struct Softmax {
  double most;
  double sum = 0;

  Softmax(const Head& head, const std::vector<double>& scores)
      : most(*std::ranges::max_element(scores)) {
    if (head.sink) most = std::max(most, *head.sink);
    for (const double s : scores) sum += std::exp(s - most);
    if (head.sink) sum += std::exp(*head.sink - most);
  }
  double weight(double score) const { return std::exp(score - most) / sum; }
};

/// The result when weights[j] is off by its share of scores' errors, relatively.
Noise noise_of_scores(const Head& head, const Scores& scores, const std::vector<double>& weights,
                      const Softmax& softmax, const std::vector<double>& mean) {
  const double most = std::abs(softmax.most);
  Noise out;
  if (head.sink) {  // its value is 0
    const double error = softmax.weight(*head.sink) * kUnit * (std::abs(*head.sink) + most);
    for (const double m : mean) out.variance += error * error * m * m;
  }
  for (std::size_t j = 0; j < head.n_keys; ++j) {
    double distance = 0;
    for (std::size_t d = 0; d < head.dim; ++d)
      distance += std::pow(head.values.values[head.at(j) + d] - mean[d], 2);
    const double error = weights[j] * kUnit * (scores.error[j] + most);
    out.variance += error * error * distance;
  }
  return out;
}

/// The sum of weighted values in q8: weights are rounded to integers in each chunk.
class CodedSum {
 public:
  CodedSum(const Head& head, const Scores& scores, const Softmax& softmax)
      : head_(head), scores_(scores), softmax_(softmax) {}

  std::vector<double> mean(Noise& noise) {
    std::vector<double> out(head_.dim);
    for (std::size_t begin = 0, end = 0; begin < head_.n_keys; begin = end) {
      const std::size_t next_chunk = ((head_.first_key + begin) / kChunk + 1) * kChunk;
      end = std::min(next_chunk - head_.first_key, head_.n_keys);
      const double top = *std::max_element(scores_.value.begin() + signed_of(begin),
                                           scores_.value.begin() + signed_of(end));
      for (std::size_t g = 0; g < head_.n_groups(); ++g)
        add_group(begin, end, g, top, softmax_.weight(top), out, noise);
    }
    return out;
  }

 private:
  static std::ptrdiff_t signed_of(std::size_t i) { return static_cast<std::ptrdiff_t>(i); }

  void add_group(std::size_t begin, std::size_t end, std::size_t g, double top, double share,
                 std::vector<double>& out, Noise& noise) const {
    float largest = 0;
    for (std::size_t j = begin; j < end; ++j) largest = std::max(largest, head_.step(j, g));
    const float inverse = kMostWeight / largest;
    if (!std::isfinite(inverse)) return;
    const double step = static_cast<double>(largest / kMostWeight) * share;
    for (std::size_t j = begin; j < end; ++j) {
      const float ratio = head_.step(j, g) * inverse;
      const double weight = std::exp(scores_.value[j] - top) * static_cast<double>(ratio);
      const double p = std::nearbyint(weight);
      double change = 0;
      for (std::size_t d = g * kGroup; d < std::min(head_.dim, (g + 1) * kGroup); ++d) {
        const double code = head_.values.codes[head_.at(j) + d];
        out[d] += step * p * code;
        change += step * step * code * code;
      }
      const double off = kUnit * (scores_.error[j] + std::abs(top) + 2) * weight;
      if (0.5 - std::abs(weight - p) < kTieUnits * off) noise.flips += change;
    }
  }

  const Head& head_;
  const Scores& scores_;
  const Softmax& softmax_;
};

/// Writes the context.
Noise ideal_head(const Head& head, KvType kv, std::span<const float> q, std::span<float> context) {
  std::vector<double> query(q.begin(), q.end());
  std::size_t n_terms = head.dim;
  if (kv == KvType::kQ8) {
    n_terms = 2 * head.n_groups();  // dq * dk, and the sum; integer sums are exact
    const TapMatrix one{1, q.size(), {q.begin(), q.end()}};
    query = as_cached(one, kv, head.dim).values;
  }
  const Scores scores = scores_of(head, query, n_terms);
  const Softmax softmax(head, scores.value);
  std::vector<double> weights;
  for (const double s : scores.value) weights.push_back(softmax.weight(s));
  std::vector<double> mean(head.dim);
  for (std::size_t j = 0; j < head.n_keys; ++j)
    for (std::size_t d = 0; d < head.dim; ++d)
      mean[d] += weights[j] * head.values.values[head.at(j) + d];
  Noise noise = noise_of_scores(head, scores, weights, softmax, mean);
  if (kv == KvType::kQ8) mean = CodedSum(head, scores, softmax).mean(noise);
  for (std::size_t d = 0; d < head.dim; ++d) context[d] = static_cast<float>(mean[d]);
  return noise;
}

}  // namespace

IdealOutput ideal_attention(const AttentionSpec& spec, KvType kv, const TapMatrix& q,
                            const TapMatrix& k, const TapMatrix& v, TokenRows rows,
                            std::span<const float> sinks) {
  const std::size_t dim = spec.head_dim;
  const auto scale = static_cast<double>(spec.scale);
  const auto cap = static_cast<double>(spec.score_cap);
  const Cached keys = as_cached(k, kv, dim);
  const Cached values = as_cached(v, kv, dim);
  IdealOutput out;
  out.output = {q.rows, q.features, std::vector<float>(q.values.size())};
  for (std::size_t t = 0; t < q.rows; ++t) {
    const std::size_t n_past = (rows.empty() ? t : rows[t]) + 1;
    const std::size_t n_keys = spec.window == 0 ? n_past : std::min(spec.window, n_past);
    Noise noise;
    double energy = 0;
    for (std::size_t h = 0; h < spec.n_heads; ++h) {
      const std::size_t kv_head = h / spec.heads_per_kv();
      const std::size_t at = t * q.features + h * dim;
      const std::span context = std::span(out.output.values).subspan(at, dim);
      const std::optional<double> sink =
          sinks.empty() ? std::optional<double>() : static_cast<double>(sinks[h]);
      const Noise own =
          ideal_head({keys, values, kv_head, n_past - n_keys, n_keys, dim, scale, cap, sink}, kv,
                     std::span(q.values).subspan(at, dim), context);
      noise.variance += own.variance;
      noise.flips += own.flips;
      for (const float c : context) energy += static_cast<double>(c) * static_cast<double>(c);
    }
    const double most = kDeviations * kDeviations * noise.variance + kAlike * noise.flips;
    out.row_noise.push_back(energy > 0 ? most / energy : 0);
  }
  return out;
}

}  // namespace llm
