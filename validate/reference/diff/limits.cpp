#include "validate/reference/diff/limits.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/json.h"
#include "base/json_members.h"

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

constexpr std::string_view kFormat = "llmcheck-limits/1";

Result<Limit> parse_rule(const Json& json, std::size_t index) {
  const std::string field = fmt::format("limits[{}]", index);
  if (!json.is_object()) return malformed_json(field, shown_json(json), "an object");
  const JsonMembers members(json, field);
  Limit limit;
  LLM_TRY(limit.probe, members.text("probe"));
  LLM_TRY(limit.source, members.text("source"));
  LLM_TRY(const std::string metric, members.text("metric"));
  const auto* known =
      std::ranges::find(kNames, metric, &std::pair<Metric, std::string_view>::second);
  if (known == kNames.end()) {
    return malformed_json(members.field("metric"), shown_json(metric),
                          "nmse, row_nmse, max_abs or cos_loss");
  }
  limit.metric = known->first;
  LLM_TRY(limit.bound, members.amount("limit"));
  return limit;
}

}  // namespace

std::string_view metric_name(Metric metric) {
  return std::ranges::find(kNames, metric, &std::pair<Metric, std::string_view>::first)->second;
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

Result<Limits> parse_limits(std::string_view text) {
  LLM_TRY(const Json json, parse_json_object(text));
  const JsonMembers members(json, "");
  LLM_RETURN_IF_ERROR(members.format(kFormat));
  LLM_TRY(const Json* rules, members.array("limits", std::nullopt));
  std::vector<Limit> out;
  for (std::size_t i = 0; i < rules->size(); ++i) {
    LLM_TRY(Limit limit, parse_rule((*rules)[i], i));
    out.push_back(std::move(limit));
  }
  return Limits(std::move(out));
}

Limits exact_limits() {
  return Limits({{"*", Metric::kMaxAbs, 0, "the numeric contract: equal bits"}});
}

}  // namespace llm
