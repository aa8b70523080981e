#include "validate/reference/diff/limits.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "base/json.h"

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
  const auto bad = [&](const char* key, const char* rule) {
    return malformed(fmt::format("limits[{}] {}", index, key), rule);
  };
  if (!json.is_object()) return bad("", "need an object");
  for (const char* key : {"probe", "metric", "source"}) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_string()) return bad(key, "need a string");
  }
  Limit limit;
  limit.probe = json["probe"].get<std::string>();
  limit.source = json["source"].get<std::string>();
  const auto metric = metric_from_name(json["metric"].get<std::string>());
  if (!metric) return bad("metric", "need nmse, row_nmse, max_abs or cos_loss");
  limit.metric = *metric;
  const auto bound = json.find("limit");
  if (bound == json.end() || !bound->is_number()) return bad("limit", "need a number");
  limit.bound = bound->get<double>();
  if (!std::isfinite(limit.bound) || limit.bound < 0) return bad("limit", "need 0 or more");
  return limit;
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

Result<Limits> parse_limits(std::string_view text) {
  const Json json = parse_json(text);
  if (!json.is_object()) return malformed("limits file", "need a JSON object");
  if (json.value("format", Json()) != kFormat)
    return malformed("format", fmt::format("need \"{}\"", kFormat));
  const auto rules = json.find("limits");
  if (rules == json.end() || !rules->is_array() || rules->empty())
    return malformed("limits", "need an array with at least one rule");
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
