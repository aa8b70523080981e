#include "tools/llmload/lengths.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>

#include "base/json.h"
#include "tools/common/tool.h"
#include "tools/llmload/default_lengths.h"

namespace llm {
namespace {

constexpr std::size_t kLargestFile = std::size_t{16} << 20;
constexpr double kLargestWeight = 1e12;

/// As found in the file, for a message. Nothing that nests: dump() recurses.
std::string found_text(const Json& value) {
  const bool is_flat = value.is_array() && value.size() <= 4 &&
                       std::ranges::all_of(value, [](const Json& v) { return v.is_primitive(); });
  if (value.is_structured() && !is_flat) return value.type_name();
  return json_text(value, -1, /*ascii=*/true);
}

bool is_length(const Json& value) {
  return value.is_number_unsigned() && value.get<std::uint64_t>() >= 1 &&
         value.get<std::uint64_t>() <= LengthDistribution::kMostTokens;
}

}  // namespace

std::size_t LengthDistribution::Range::at(double share) const {
  return first + static_cast<std::size_t>(share * static_cast<double>(last - first + 1));
}

template <typename Json>
auto LengthDistribution::parse_range(const Json& entry, const std::string& place, const char* name)
    -> Result<Range> {
  const std::string field = place + "." + name;
  // By reference: copies of nested values recurse.
  static const Json kAbsent;
  const auto at = entry.find(name);
  const Json& value = at == entry.end() ? kAbsent : *at;
  const bool ok = value.is_array() && value.size() == 2 && is_length(value[0]) &&
                  is_length(value[1]) && value[0] <= value[1];
  if (ok) return Range{value[0].template get<std::size_t>(), value[1].template get<std::size_t>()};
  return malformed(field, fmt::format("found {}, need [lowest, highest] in 1..{}",
                                      found_text(value), kMostTokens));
}

Result<LengthDistribution> LengthDistribution::parse(std::string_view text) {
  const Json list = parse_json(text);
  if (!list.is_array() || list.empty() || list.size() > kMostClasses) {
    return malformed("lengths", fmt::format("found {}, need a JSON array of 1..{} classes",
                                            list.is_array() ? fmt::format("{} classes", list.size())
                                            : list.is_discarded() ? "no JSON"
                                                                  : list.type_name(),
                                            kMostClasses));
  }
  LengthDistribution result;
  double up_to = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string place = fmt::format("[{}]", i);
    const Json& entry = list[i];
    if (!entry.is_object()) {
      return malformed(place, fmt::format("found {}, need an object", entry.type_name()));
    }
    for (const auto& [name, value] : entry.items()) {
      if (name == "weight" || name == "prompt" || name == "output") continue;
      return malformed(place + "." + name, "unknown, need weight, prompt and output alone");
    }
    static const Json kOne = 1;
    const auto at = entry.find("weight");
    const Json& weight = at == entry.end() ? kOne : *at;
    if (!weight.is_number() ||
        !(weight.get<double>() > 0 && weight.get<double>() <= kLargestWeight))
      return malformed(place + ".weight",
                       fmt::format("found {}, need a number above 0, at most {:g}",
                                   found_text(weight), kLargestWeight));
    LLM_TRY(const Range prompt, parse_range(entry, place, "prompt"));
    LLM_TRY(const Range output, parse_range(entry, place, "output"));
    up_to += weight.get<double>();
    result.classes_.push_back({up_to, prompt, output});
  }
  return result;
}

Result<LengthDistribution> LengthDistribution::read(const std::string& path) {
  return parse_file(path, kLargestFile, parse);
}

LengthDistribution LengthDistribution::usual() { return parse(kDefaultLengths).value(); }

RequestLengths LengthDistribution::draw(double choice, double prompt, double output) const {
  const double wanted = choice * classes_.back().up_to;
  auto at = std::ranges::upper_bound(classes_, wanted, {}, &Class::up_to);
  if (at == classes_.end()) --at;  // rounding alone
  return {at->prompt.at(prompt), at->output.at(output)};
}

std::size_t LengthDistribution::longest_request() const {
  std::size_t most = 0;
  for (const Class& c : classes_) most = std::max(most, c.prompt.last + c.output.last);
  return most;
}

}  // namespace llm
