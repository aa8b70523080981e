#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/batching/scheduler.h"

namespace llm {

/// What of a step its time depends on.
struct StepShape {
  std::size_t n_tokens = 0;
  std::size_t n_sequences = 0;
  std::size_t n_attended = 0;  ///< positions, summed over tokens: position p attends to p + 1
  std::size_t n_read = 0;    ///< the same, but summed over groups of 8 tokens, each its last one's
  std::size_t n_logits = 0;  ///< rows
  bool after_idle = false;   ///< there was nothing to do before: threads sleep, caches are cold

  void add(const StepPart& part);
  bool operator==(const StepShape&) const = default;
};

StepShape shape_of(const Step& step);

struct StepSample {
  StepShape shape;
  double seconds = 0;  ///< > 0
};

/// Predicts a step's time as a sum of features times costs, fitted to measured steps.
class CostModel {
 public:
  /// Seconds of one unit of each feature. The products' cost is piecewise linear in the tokens: one
  /// token has kernels of its own, more share the unpacking of weights ("batch"), and the first 16
  /// may wait for memory where others wait for arithmetic.
  /// Attention works on several tokens of a sequence at once, which then share what is read.
  static constexpr std::array<std::string_view, 9> kNames = {
      "step",     "batch", "token_to_16", "token_from_17", "sequence",
      "attended", "read",  "logits_row",  "after_idle"};
  using Features = std::array<double, kNames.size()>;

  CostModel() = default;
  explicit CostModel(const Features& seconds) : seconds_(seconds) {}

  /// Least squares of relative errors with no cost below 0, fitted twice: the second time each
  /// sample counts by its error in the first (Huber's weights), so that a disturbed one does not
  /// bend the rest. Errors: kResource for fewer samples than features.
  static Result<CostModel> fit(std::span<const StepSample> samples);

  /// Never below a microsecond.
  double predict(const StepShape& shape) const;
  const Features& seconds() const { return seconds_; }

 private:
  Features seconds_ = {};
};

/// By what factor steps take more or less than predicted: a percentile of noisy times is not one of
/// their means. Small steps are disturbed by more of their time than large ones, so there are four
/// groups of predicted time, with as many samples each.
class Residuals {
 public:
  /// None: every factor is 1.
  Residuals() = default;
  /// The samples' measured / predicted, scaled so that in each group the mean factor times all
  /// predicted time is all measured time.
  static Residuals of(const CostModel& model, std::span<const StepSample> samples);

  /// The factor of a step. @param uniform in [0, 1)
  double at(double predicted, double uniform) const;

 private:
  struct Group {
    double up_to;  ///< predicted seconds; the last group takes all above
    std::vector<double> factors;
  };
  std::vector<Group> groups_;
};

/// How well a model predicts samples.
struct FitQuality {
  std::size_t n_steps = 0;
  double median_error = 0;  ///< of |predicted / measured - 1|
  double total_ratio = 1;   ///< sum of predicted / sum of measured
};

FitQuality quality_of(const CostModel& model, std::span<const StepSample> samples);

}  // namespace llm
