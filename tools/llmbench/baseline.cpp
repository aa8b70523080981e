#include <fmt/core.h>

#include "base/json.h"
#include "tools/common/tool.h"
#include "tools/llmbench/report.h"

namespace llm {
namespace {

constexpr std::size_t kLargestFile = std::size_t{64} << 20;

Error malformed(const std::string& path, std::string field, std::string message) {
  return Error{.code = ErrorCode::kMalformed,
               .field = std::move(field),
               .message = std::move(message),
               .file = path,
               .hint = "write it with llmbench -o json"};
}

std::string key_of(std::string_view test, std::string_view model, std::string_view type,
                   std::int64_t threads, std::string_view isa, std::string_view kv) {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}", test, model, type, threads, isa, kv);
}

std::optional<std::string> key_of(const Json& row) {
  for (const char* key : {"test", "model", "type", "isa", "kv"}) {
    if (!row.contains(key) || !row[key].is_string()) return std::nullopt;
  }
  if (!row.contains("threads") || !row["threads"].is_number_integer()) return std::nullopt;
  const auto text = [&row](const char* key) { return row[key].get<std::string>(); };
  return key_of(text("test"), text("model"), text("type"), row["threads"].get<std::int64_t>(),
                text("isa"), text("kv"));
}

std::optional<Spread> spread_of_row(const Json& row) {
  const char* unit = row.contains("tokens_per_s") ? "tokens_per_s" : "ms";
  if (!row.contains(unit) || !row[unit].is_object()) return std::nullopt;
  Spread spread;
  for (const auto& [key, value] : {std::pair{"median", &spread.median},
                                   std::pair{"min", &spread.min}, std::pair{"max", &spread.max}}) {
    if (!row[unit].contains(key) || !row[unit][key].is_number()) return std::nullopt;
    *value = row[unit][key].get<double>();
    if (!(*value > 0)) return std::nullopt;
  }
  return spread;
}

}  // namespace

Result<Baseline> Baseline::read(const std::string& path) {
  LLM_TRY(const std::string text, read_text_file(path, kLargestFile));
  const Json json = parse_json(text);
  if (!json.is_array()) return malformed(path, "", "found no JSON array, need one of tests");
  Baseline baseline;
  for (std::size_t i = 0; i < json.size(); ++i) {
    if (json[i].is_object() && !json[i].contains("test")) continue;  // the peaks
    const auto key = json[i].is_object() ? key_of(json[i]) : std::nullopt;
    const auto spread = key ? spread_of_row(json[i]) : std::nullopt;
    if (!spread) {
      return malformed(path, fmt::format("[{}]", i),
                       "need test, model, type, threads, isa, kv and tokens_per_s or ms with a "
                       "positive median, min and max");
    }
    baseline.rows_[*key] = *spread;
  }
  return baseline;
}

std::optional<Comparison> Baseline::compare(const BenchModel& model, const Measurement& now) const {
  const auto row = rows_.find(key_of(now.test.name(), model.name, model.type, now.threads,
                                     isa_name(now.isa), kv_name(now.kv)));
  if (row == rows_.end()) return std::nullopt;
  const Spread current = spread_of(figures(now));
  Comparison comparison;
  comparison.old = row->second;
  comparison.speedup = now.test.is_latency() ? comparison.old.median / current.median
                                             : current.median / comparison.old.median;
  comparison.overlap = current.min <= comparison.old.max && comparison.old.min <= current.max;
  return comparison;
}

}  // namespace llm
