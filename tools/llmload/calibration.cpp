#include "tools/llmload/calibration.h"

#include <fmt/core.h>

#include <cmath>
#include <utility>
#include <vector>

#include "base/json.h"
#include "tools/common/tool.h"

namespace llm {
namespace {

constexpr int kSchema = 2;
constexpr std::size_t kLargestFile = std::size_t{1} << 20;
constexpr std::size_t kMostGroups = 64;
constexpr double kLargestRatio = 1e6;
constexpr std::int64_t kLargestCount = std::int64_t{1} << 31;

/// Reads members of an object; the first error stays.
class Members {
 public:
  explicit Members(const OrderedJson& json) : json_(json) {}

  void read(const char* name, std::string& target) {
    if (const OrderedJson* value = find(name); value != nullptr && value->is_string())
      target = value->get<std::string>();
    else
      fail(name, "a string");
  }
  template <std::integral T>
  void read(const char* name, T& target) {
    const OrderedJson* value = find(name);
    if (value != nullptr && value->is_number_unsigned() && *value >= 1 && *value <= kLargestCount)
      target = value->get<T>();
    else
      fail(name, "an integer from 1 on");
  }
  void read(const char* name, double& target) {
    const OrderedJson* value = find(name);
    if (value != nullptr && value->is_number() && std::isfinite(value->get<double>()))
      target = value->get<double>();
    else
      fail(name, "a number");
  }
  const Status& status() const { return status_; }

 private:
  const OrderedJson* find(const char* name) const {
    const auto at = json_.find(name);
    return at == json_.end() ? nullptr : &*at;
  }
  void fail(const char* name, const char* rule) {
    if (!status_.ok()) return;
    const OrderedJson* value = find(name);
    status_ = Error{ErrorCode::kMalformed, name,
                    fmt::format("found {}, need {}",
                                value == nullptr        ? "nothing"
                                : value->is_primitive() ? value->dump(-1, ' ', true)
                                                        : value->type_name(),
                                rule)};
  }

  const OrderedJson& json_;
  Status status_ = Ok{};
};

/// Calls `visit` with the name and the value of each fact of a calibration that is one value.
template <typename C, typename Visit>
void visit_facts(C& c, const Visit& visit) {
  visit("model_sha256", c.subject.model_sha256);
  visit("compute", c.subject.compute);
  visit("kv", c.subject.kv);
  visit("cpu", c.subject.cpu);
  visit("isa", c.subject.isa);
  visit("threads", c.subject.threads);
  visit("step_tokens", c.subject.step_tokens);
  visit("parallel", c.subject.parallel);
  visit("context", c.subject.context);
  visit("steps", c.n_steps);
  visit("r2", c.fit.r2);
  visit("median_error", c.fit.median_error);
  visit("p95_error", c.fit.p95_error);
}

Error differs(const char* what, const std::string& found, const std::string& needed) {
  return Error{.code = ErrorCode::kIntegrity,
               .field = what,
               .message = fmt::format("found {}, need {}", found, needed),
               .hint = "measure anew, with --save-calibration"};
}

Error bad_residuals(const std::string& found) {
  return Error{ErrorCode::kMalformed, "residuals",
               fmt::format("found {}, need groups of ascending up_to_seconds, each with "
                           "{} ratios of 0 or more",
                           found, Residuals::kBins)};
}

Result<Residuals> parse_residuals(const OrderedJson& json) {
  const auto list = json.find("residuals");
  if (list == json.end()) return bad_residuals("nothing");
  if (!list->is_array() || list->empty() || list->size() > kMostGroups)
    return bad_residuals(list->is_array() ? fmt::format("{} groups", list->size())
                                          : list->type_name());
  std::vector<Residuals::Group> groups;
  for (const OrderedJson& entry : *list) {
    if (!entry.is_object()) return bad_residuals(entry.type_name());
    Residuals::Group group;
    Members members(entry);
    members.read("up_to_seconds", group.up_to);
    LLM_RETURN_IF_ERROR(members.status());
    if (!groups.empty() && group.up_to < groups.back().up_to)
      return bad_residuals(fmt::format("{} after {}", group.up_to, groups.back().up_to));
    const auto ratios = entry.find("ratios");
    if (ratios == entry.end() || !ratios->is_array() || ratios->size() != Residuals::kBins)
      return bad_residuals("other ratios");
    for (std::size_t i = 0; i < Residuals::kBins; ++i) {
      const OrderedJson& ratio = (*ratios)[i];
      if (!ratio.is_number() || !(ratio.get<double>() >= 0) || ratio.get<double>() > kLargestRatio)
        return bad_residuals("a ratio of " +
                             std::string(ratio.is_number() ? json_text(ratio) : ratio.type_name()));
      group.ratios[i] = ratio.get<double>();
    }
    groups.push_back(group);
  }
  return Residuals(std::move(groups));
}

}  // namespace

Result<Calibration> calibrate(const CalibrationSubject& subject,
                              std::span<const StepSample> samples) {
  LLM_TRY(const CostModel costs, CostModel::fit(samples));
  return Calibration{subject, costs, Residuals::of(costs, samples), quality_of(costs, samples),
                     samples.size()};
}

std::string Calibration::to_json() const {
  OrderedJson costs_json;
  for (std::size_t i = 0; i < CostModel::kNames.size(); ++i) {
    costs_json[std::string(CostModel::kNames[i])] = costs.seconds()[i];
  }
  OrderedJson groups = OrderedJson::array();
  for (const Residuals::Group& group : residuals.groups()) {
    groups.push_back({{"up_to_seconds", group.up_to}, {"ratios", group.ratios}});
  }
  OrderedJson json = {{"schema_version", kSchema}};
  visit_facts(*this, [&](const char* name, const auto& value) { json[name] = value; });
  json.update({{"seconds", costs_json}, {"residuals", groups}});
  return json_text(json, 2) + "\n";
}

Result<Calibration> Calibration::parse(std::string_view text) {
  const OrderedJson json = parse_ordered_json(text);
  if (!json.is_object()) {
    return Error{.code = ErrorCode::kMalformed,
                 .field = "calibration",
                 .message = "found no JSON object, need one",
                 .hint = "write it with llmload --save-calibration"};
  }
  Members members(json);
  int schema = 0;
  members.read("schema_version", schema);
  LLM_RETURN_IF_ERROR(members.status());
  if (schema != kSchema) {
    return Error{ErrorCode::kUnsupported, "schema_version",
                 fmt::format("found {}, need {}", schema, kSchema)};
  }
  Calibration c;
  visit_facts(c, [&](const char* name, auto& value) { members.read(name, value); });
  LLM_RETURN_IF_ERROR(members.status());
  const auto seconds = json.find("seconds");
  if (seconds == json.end() || !seconds->is_object()) {
    return Error{ErrorCode::kMalformed, "seconds",
                 "found no object, need one number for each cost"};
  }
  CostModel::Features costs = {};
  Members cost_members(*seconds);
  for (std::size_t i = 0; i < costs.size(); ++i) {
    cost_members.read(std::string(CostModel::kNames[i]).c_str(), costs[i]);
  }
  LLM_RETURN_IF_ERROR(cost_members.status());
  c.costs = CostModel(costs);
  LLM_TRY(c.residuals, parse_residuals(json));
  return c;
}

Result<Calibration> Calibration::read(const std::string& path) {
  return parse_file(path, kLargestFile, parse);
}

Status Calibration::check_fits(const CalibrationSubject& wanted, bool same_machine) const {
  struct Fact {
    const char* name;
    std::string found;
    std::string needed;
    bool of_machine;
  };
  for (const Fact& fact :
       {Fact{"model_sha256", subject.model_sha256, wanted.model_sha256, false},
        Fact{"compute", subject.compute, wanted.compute, false},
        Fact{"kv", subject.kv, wanted.kv, false}, Fact{"cpu", subject.cpu, wanted.cpu, true},
        Fact{"isa", subject.isa, wanted.isa, true},
        Fact{"threads", std::to_string(subject.threads), std::to_string(wanted.threads), true}}) {
    if (fact.found != fact.needed && (same_machine || !fact.of_machine))
      return differs(fact.name, fact.found, fact.needed);
  }
  struct Limit {
    const char* name;
    std::size_t found;
    std::size_t needed;
  };
  for (const Limit& limit : {Limit{"step_tokens", subject.step_tokens, wanted.step_tokens},
                             Limit{"parallel", subject.parallel, wanted.parallel},
                             Limit{"context", subject.context, wanted.context}}) {
    if (limit.found < limit.needed)
      return differs(limit.name, std::to_string(limit.found),
                     std::to_string(limit.needed) + " or more");
  }
  return Ok{};
}

}  // namespace llm
