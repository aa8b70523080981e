#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "validate/reference/diff/metrics.h"

namespace llm {

/// What a limit bounds. Every metric is written so that smaller is better and `value <= bound` is
/// the test, which NaN fails.
enum class Metric {
  kNmse,
  kRowNmse,  ///< of the worst token
  kMaxAbs,
  kCosineLoss,  ///< 1 - cos_min
};

/// "nmse", "row_nmse", "max_abs", "cos_loss".
std::string_view metric_name(Metric metric);
double metric_value(Metric metric, const TapError& error);

/// One rule of a limits file.
struct Limit {
  std::string probe;  ///< "*", a tap ("q", "logits") or a tap of one layer ("L003/q", "G/logits")
  Metric metric = Metric::kNmse;
  double bound = 0;
  std::string source;  ///< why this bound: how it was derived or calibrated
};

/// An ordered list of limits; of those that fit a tap and metric, the last one counts.
class Limits {
 public:
  Limits() = default;
  explicit Limits(std::vector<Limit> rules) : rules_(std::move(rules)) {}

  /// The rule for a tap, or nullptr. `label` is tap_label(): "L003/q".
  const Limit* find(std::string_view label, Metric metric) const;
  const std::vector<Limit>& rules() const { return rules_; }

 private:
  std::vector<Limit> rules_;
};

/// Parses a limits file:
///
///   {"format": "llmcheck-limits/1",
///    "limits": [{"probe": "*", "metric": "nmse", "limit": 1e-9, "source": "why"}, ...]}
///
/// Errors (kMalformed) name the rule's index and key; a limit is a finite number from 0 on.
Result<Limits> parse_limits(std::string_view json);

/// Equality of every bit that counts: max_abs <= 0.
Limits exact_limits();

}  // namespace llm
