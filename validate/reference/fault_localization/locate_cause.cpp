#include "validate/reference/fault_localization/locate_cause.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "validate/reference/diff/metrics.h"
#include "validate/reference/fault_localization/ideal_ops.h"

namespace llm {
namespace {

/// What a form of the difference says of an op. {} is the type of its weights.
struct Cause {
  std::optional<TapOp> op;  ///< none: of every op
  SignatureKind kind;
  std::string_view text;
  bool of_file = false;  ///< not where a run differs from the definition on the same file
};

constexpr Cause kCauses[] = {
    {{}, SignatureKind::kNonFinite, "NaN or Inf in its weight, or an overflow"},
    {{}, SignatureKind::kZero, "the output is not written, or multiplied by 0"},
    {TapOp::kProduct, SignatureKind::kOtherTap,
     "the tensor of that op is bound in place of its own"},
    {{}, SignatureKind::kOtherTap, "its input is passed through, or two vectors are exchanged"},
    {TapOp::kEmbedding, SignatureKind::kScale, "the scale of the embedding"},
    {TapOp::kProduct, SignatureKind::kScale, "the scale of the weights or of the product"},
    {TapOp::kNorm, SignatureKind::kScale, "the norm's weight, all of it times one factor"},
    {TapOp::kRope, SignatureKind::kScale, "the scale of q, or the magnitude that YaRN has"},
    {TapOp::kScale, SignatureKind::kScale, "the layer's scale"},
    {{}, SignatureKind::kScale, "a factor that is missing, applied twice or another one"},
    {TapOp::kRope, SignatureKind::kPositionShift, "the positions, which are off by one"},
    {TapOp::kEmbedding, SignatureKind::kPositionShift, "the token ids, which are off by one place"},
    {{}, SignatureKind::kPositionShift, "rows of the token before or after are taken"},
    {TapOp::kRope, SignatureKind::kRopePermutation,
     "how dims are paired: neighbours or halves of a head"},
    {TapOp::kProduct, SignatureKind::kPermutation, "the rows of the matrix are in another order"},
    {TapOp::kAttention, SignatureKind::kPermutation, "the order of the heads"},
    {{}, SignatureKind::kPermutation, "the order of the features"},
    {TapOp::kProduct, SignatureKind::kHighBit, "how {} blocks are read: high bits of the codes"},
    {TapOp::kEmbedding, SignatureKind::kHighBit, "how {} blocks are read: high bits of the codes"},
    {TapOp::kProduct, SignatureKind::kTail, "the last rows of the matrix: a size or an offset"},
    {{}, SignatureKind::kTail, "a size: what is behind it is not computed"},
    {TapOp::kProduct, SignatureKind::kPeriod,
     "how rows of the matrix are packed or divided among workers"},
    {{}, SignatureKind::kPeriod, "how features are divided into blocks or heads"},
    {TapOp::kProduct, SignatureKind::kFeatures, "damaged weights in those rows of the matrix",
     true},
    {{}, SignatureKind::kFeatures, "damaged weights of those features", true},
    {{}, SignatureKind::kFeatures, "how those features are computed"},
    {TapOp::kProduct, SignatureKind::kRows, "the activations of those tokens, or their batch"},
    {TapOp::kEmbedding, SignatureKind::kRows, "those rows of the embedding, or those token ids"},
    {{}, SignatureKind::kRows, "what only those tokens have: position, batch, rows of a cache"},
    {TapOp::kProduct, SignatureKind::kRowScale, "the scales of the activations"},
    {{},
     SignatureKind::kRowScale,
     "what each token is divided by: eps, or what is normed together"},
    {TapOp::kProduct, SignatureKind::kFeatureScale, "a scale for each row of the matrix"},
    {{}, SignatureKind::kFeatureScale, "its weight"},
    {TapOp::kProduct, SignatureKind::kOffset, "the bias"},
    {{}, SignatureKind::kOffset, "a vector that is added"},
};

/// All that an op depends on.
std::string_view parts_of(TapOp op) {
  switch (op) {
    case TapOp::kEmbedding:
      return "token ids, the row taken, how {} blocks are dequantized";
    case TapOp::kNorm:
      return "eps, the norm's weight, which rows are normed";
    case TapOp::kHeadNorm:
      return "eps, which heads are normed";
    case TapOp::kLayerInputs:
      return "eps, the norm's weight, the roots that values are multiplied by, the layers' order";
    case TapOp::kLayerGate:
      return "the activation, which layer's inputs it lets through";
    case TapOp::kScale:
      return "the layer's scale, what of the layer it multiplies";
    case TapOp::kProduct:
      return "how {} blocks are read (codes, scales, type id), which tensor is bound, the bias";
    case TapOp::kRope:
      return "which dims rotate, how they are paired, the norm of the heads, the scale of q";
    case TapOp::kAttention:
      return "1/sqrt(d), the cap of scores, the causal mask, which KV head a head reads, rows of "
             "the KV cache";
    case TapOp::kOutputGate:
      return "the sigmoid or softplus, which head a gate is of, rows of q and of the gate "
             "exchanged";
    case TapOp::kConvolution:
      return "the order of the convolution's weights, its bias, what a sequence keeps of earlier "
             "rows";
    case TapOp::kMultiply:
      return "which parts of the product are multiplied";
    case TapOp::kDeltaRule:
      return "the lengths of q and k, which key head a value head has, beta, what stays, states";
    case TapOp::kScan:
      return "the parts of the convolution, which B and C a head has, the time step, what stays, "
             "what goes past the state, states";
    case TapOp::kNormOfGated:
      return "eps, the norm's weight, its groups, whether the gate comes before it";
    case TapOp::kGatedNorm:
      return "eps, the norm's weight, the gate";
    case TapOp::kActivation:
      return "the activation, gate and up exchanged";
    case TapOp::kSharedSum:
      return "the shared expert's weight, where it has one, which two vectors are added";
    case TapOp::kMix:
      return "which experts are chosen, their weights, the order of the sum";
    case TapOp::kSum:
      return "which two vectors are added";
  }
  return {};
}

/// A difference without a form, by its size.
std::string_view size_words(double error) {
  constexpr double kNearly = 1e-5;
  constexpr double kPartly = 0.3;
  return error < kNearly   ? "the values are nearly right, so a constant or rounding"
         : error < kPartly ? "the values are right in part"
                           : "the values have little to do with the right ones";
}

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// Whether all numbers agree but for `share` of them.
bool agree(std::span<const double> values, double share) {
  const auto [least, most] = std::ranges::minmax(values);
  return least > 0 && most - least <= share * most;
}

std::string number_words(std::string_view what, double other, double own, bool is_reference) {
  return fmt::format("{}: the {} values follow from {:.4g}, the file has {:.4g}", what,
                     is_reference ? "reference's" : "run's", other, own);
}

class Measurement {
 public:
  Measurement(const Replay& replay, const WrongOp& wrong)
      : config_(replay.config()),
        has_divisors_(!replay.model()->weights().rope_divisors.span().empty()),
        wrong_(wrong),
        // Which side was computed with the file's numbers, and which was not.
        own_(wrong.is_reference ? wrong.output.actual : wrong.output.expected),
        other_(wrong.is_reference ? wrong.output.expected : wrong.output.actual) {}

  /// eps' of row t follows from the sizes of both outputs: (|own| / |other|)^2 = (ms + eps') / (ms
  /// + eps), with ms the mean square of its input. Nothing unless the rows agree.
  Result<std::string> eps() const {
    const auto from = input_of(wrong_.tap, wrong_.layer, config_);
    LLM_TRY(auto x, engine_order_tap(wrong_.inputs, from->layer, from->row->name, config_));
    if (!x) return std::string();
    const TapMatrix input = select_rows(*std::move(x), wrong_.rows);
    const auto own_eps = static_cast<double>(config_.norm_eps);
    std::vector<double> found;
    for (std::size_t t = 0; t < input.rows; ++t) {
      const double mean_square = energy_of(input.row(t)) / static_cast<double>(input.features);
      const double ratio = energy_of(own_.row(t)) / energy_of(other_.row(t));
      found.push_back((mean_square + own_eps) * ratio - mean_square);
      // Rounding to f32, as an error of the eps.
      if (std::abs(found.back()) < kRounding * mean_square) return std::string();
    }
    if (!agree(found, kSpread)) return std::string();
    return number_words("eps", median_of(found), own_eps, wrong_.is_reference);
  }

  /// Of pairs that only turn: what the angles show.
  std::string rope() {
    const auto layer = static_cast<std::size_t>(wrong_.layer);
    head_dim_ = config_.attention(layer).head_dim;
    n_pairs_ = config_.rope_of(layer).dims / 2;
    if (n_pairs_ < 2 || !keeps_lengths()) return {};
    std::string numbers = rope_numbers(config_.rope_of(layer));
    return numbers.empty() ? "the angles: RoPE's base, what divides positions, or the positions"
                           : numbers;
  }

 private:
  static constexpr double kRounding = 1e-5;
  static constexpr double kSpread = 0.05;  ///< of numbers that should be one

  std::size_t position(std::size_t t) const { return wrong_.rows.empty() ? t : wrong_.rows[t]; }

  bool keeps_lengths() const {
    double error = 0;
    double energy = 0;
    for (std::size_t i = 0; i + 1 < own_.values.size(); i += 2) {
      const double own = energy_of(std::span(own_.values).subspan(i, 2));
      const double other = energy_of(std::span(other_.values).subspan(i, 2));
      error += (own - other) * (own - other);
      energy += own * own;
    }
    return error <= kRounding * energy;
  }

  /// How much further the other side has turned pair i of row t, over all heads.
  double turn(std::size_t t, std::size_t i) const {
    double cosine = 0;
    double sine = 0;
    for (std::size_t head = 0; head < own_.features; head += head_dim_) {
      const auto own = own_.row(t).subspan(head + 2 * i, 2);
      const auto other = other_.row(t).subspan(head + 2 * i, 2);
      const auto product = [](float a, float b) {
        return static_cast<double>(a) * static_cast<double>(b);
      };
      cosine += product(own[0], other[0]) + product(own[1], other[1]);
      sine += product(own[0], other[1]) - product(own[1], other[0]);
    }
    return std::atan2(sine, cosine);
  }

  /// The base or the factor that gives the other side's angles at the second token, where
  /// differences are smaller than half a turn. Pair i turns by theta^(-i / n) / factor at each
  /// position: so pair 0 knows nothing of the base, and position 0 of neither.
  std::string rope_numbers(const RopeSpec& rope) const {
    if (own_.rows < 2 || position(0) != 0 || rope.yarn || (rope.has_divisors && has_divisors_))
      return {};
    const std::size_t t = 1;
    const auto theta = static_cast<double>(rope.theta);
    const auto factor = static_cast<double>(rope.scale);
    if (const double early = turn(0, 0) * factor; std::abs(early) > kRounding)
      return fmt::format("the positions, which are {:.4g} {} than the {}", std::abs(early),
                         (early < 0) == wrong_.is_reference ? "more" : "less",
                         wrong_.is_reference ? "reference's" : "definition's");
    std::vector<double> bases;
    std::vector<double> factors;
    for (std::size_t i = 0; i < n_pairs_; ++i) {
      const double exponent = static_cast<double>(i) / static_cast<double>(n_pairs_);
      const double own = std::pow(theta, -exponent) / factor;
      const double difference = turn(t, i) / static_cast<double>(position(t));
      const double other = own + difference;
      if (other <= 0) return {};
      if (std::abs(difference) < kRounding) {
        if (i == 0) factors.push_back(factor);
        continue;
      }
      factors.push_back(std::pow(theta, -exponent) / other);
      if (i > 0) bases.push_back(std::pow(other * factor, -1 / exponent));
    }
    if (agree(factors, kSpread))
      return number_words("what divides RoPE's positions", median_of(factors), factor,
                          wrong_.is_reference);
    if (!bases.empty() && agree(bases, kSpread))
      return number_words("RoPE's base", median_of(bases), theta, wrong_.is_reference);
    return {};
  }

  const HyperParameters& config_;
  bool has_divisors_;
  const WrongOp& wrong_;
  const TapMatrix& own_;
  const TapMatrix& other_;
  std::size_t head_dim_ = 0;
  std::size_t n_pairs_ = 0;
};

/// A product whose output has no form.
std::string matrix_words(double error, std::string_view type, bool is_reference) {
  constexpr double kSameMatrix = 0.3;
  if (error >= kSameMatrix)
    return is_reference ? "another matrix: a different tensor, or its columns in another order"
                        : "another matrix or other activations, or their columns exchanged";
  return fmt::format("the same matrix with other errors: {}how {} blocks are read",
                     is_reference ? "another quantization of it, or " : "", type);
}

}  // namespace

Result<std::string> likely_cause(const Replay& replay, const WrongOp& wrong) {
  Measurement measurement(replay, wrong);
  std::string measured;
  const TapOp op = wrong.tap.op;
  if (op == TapOp::kNorm && wrong.kind == SignatureKind::kRowScale) {
    LLM_TRY(measured, measurement.eps());
  }
  if (op == TapOp::kRope) measured = measurement.rope();
  if (!measured.empty()) return measured;
  const std::string type = replay.weight_type(wrong.layer, wrong.tap.name);
  const double error = nmse(wrong.output.actual.values, wrong.output.expected.values);
  const bool has_form = wrong.kind != SignatureKind::kNone && wrong.kind != SignatureKind::kRows;
  // The first token sees one key, whatever its score.
  const bool begins_right =
      nmse(wrong.output.actual.row(0), wrong.output.expected.row(0)) <= wrong.output.row_limits[0];
  const bool has_first = wrong.rows.empty() || wrong.rows.front() == 0;
  if (op == TapOp::kAttention && !has_form && has_first)
    return std::string(begins_right
                           ? "the scores: 1/sqrt(d), their cap, the causal mask, or rows of "
                             "the KV cache; the first token, which has one key, is right"
                           : "the values: which KV head a head reads, or rows of the KV "
                             "cache; the first token, which has one key, is wrong");
  for (const Cause& cause : kCauses) {
    if (cause.kind == wrong.kind && (!cause.op || *cause.op == op) &&
        (wrong.is_reference || !cause.of_file))
      return fmt::format(fmt::runtime(cause.text), type);
  }
  if (op == TapOp::kProduct) return matrix_words(error, type, wrong.is_reference);
  return fmt::format("{}: {}", size_words(error), fmt::format(fmt::runtime(parts_of(op)), type));
}

}  // namespace llm
