#include "validate/reference/diff/limits.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace llm {
namespace {

constexpr std::array<std::pair<Metric, std::string_view>, 4> kNames = {
    {{Metric::kNmse, "nmse"},
     {Metric::kRowNmse, "row_nmse"},
     {Metric::kMaxAbs, "max_abs"},
     {Metric::kCosineLoss, "cos_loss"}}};

bool fits(std::string_view probe, std::string_view label) {
  return probe == "*" || probe == label || probe == label.substr(label.find('/') + 1);
}

}  // namespace

std::string_view metric_name(Metric metric) {
  return std::ranges::find(kNames, metric, &std::pair<Metric, std::string_view>::first)->second;
}

std::optional<Metric> metric_from_name(std::string_view name) {
  const auto* found = std::ranges::find(kNames, name, &std::pair<Metric, std::string_view>::second);
  if (found == kNames.end()) return std::nullopt;
  return found->first;
}

double metric_value(Metric metric, const TapError& error) {
  switch (metric) {
    case Metric::kNmse:
      return error.nmse;
    case Metric::kRowNmse:
      return error.row_nmse;
    case Metric::kMaxAbs:
      return error.max_abs;
    case Metric::kCosineLoss:
      return 1 - error.cos_min;
  }
  return std::numeric_limits<double>::infinity();
}

const Limit* Limits::find(std::string_view label, Metric metric) const {
  for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule)
    if (rule->metric == metric && fits(rule->probe, label)) return &*rule;
  return nullptr;
}

}  // namespace llm
