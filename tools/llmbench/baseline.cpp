#include <fmt/core.h>

#include "base/json.h"
#include "base/json_members.h"
#include "tools/common/tool.h"
#include "tools/llmbench/report.h"

namespace llm {
namespace {

constexpr std::size_t kLargestFile = std::size_t{64} << 20;
constexpr std::size_t kMostThreads = 1 << 16;

std::string key_of(std::string_view test, std::string_view model, std::string_view type,
                   std::size_t threads, std::string_view isa, std::string_view kv) {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}", test, model, type, threads, isa, kv);
}

Result<std::string> key_of(const JsonMembers& row) {
  std::map<std::string_view, std::string> text;
  for (const char* key : {"test", "model", "type", "isa", "kv"}) {
    LLM_TRY(text[key], row.text(key));
  }
  LLM_TRY(const std::size_t threads, row.count("threads", 1, kMostThreads));
  return key_of(text["test"], text["model"], text["type"], threads, text["isa"], text["kv"]);
}

Result<Spread> spread_of_row(const JsonMembers& row) {
  const char* unit = row.has("tokens_per_s") ? "tokens_per_s" : "ms";
  LLM_TRY(const Json* json, row.object(unit));
  const JsonMembers members(*json, row.field(unit));
  Spread spread;
  for (const auto& [key, value] : {std::pair{"median", &spread.median},
                                   std::pair{"min", &spread.min}, std::pair{"max", &spread.max}}) {
    LLM_TRY(*value, members.amount(key));
    if (*value == 0) return malformed_json(members.field(key), "0", "a number above 0");
  }
  return spread;
}

/// The rows by their keys.
Result<std::map<std::string, Spread>> parse_rows(std::string_view text) {
  const Json json = parse_json(text);
  if (!json.is_array()) {
    return Error{.code = ErrorCode::kMalformed,
                 .field = "",
                 .message = "found no JSON array, need one of tests",
                 .hint = "write it with llmbench -o json"};
  }
  std::map<std::string, Spread> rows;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const std::string field = fmt::format("[{}]", i);
    if (!json[i].is_object()) return malformed_json(field, shown_json(json[i]), "an object");
    const JsonMembers row(json[i], field);
    if (!row.has("test")) continue;  // the peaks
    LLM_TRY(const std::string key, key_of(row));
    LLM_TRY(rows[key], spread_of_row(row));
  }
  return rows;
}

}  // namespace

Result<Baseline> Baseline::read(const std::string& path) {
  Baseline baseline;
  LLM_TRY(baseline.rows_, parse_file(path, kLargestFile, parse_rows));
  return baseline;
}

std::optional<Comparison> Baseline::compare(const BenchModel& model, const Measurement& now) const {
  const auto row =
      rows_.find(key_of(now.test.name(), model.name, model.type,
                        static_cast<std::size_t>(now.threads), isa_name(now.isa), kv_name(now.kv)));
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
