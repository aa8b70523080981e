#include "tools/llmbench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "base/json.h"
#include "base/shown_text.h"
#include "tools/common/option_pages.h"
#include "tools/common/stats.h"

namespace llm {
namespace {

constexpr double kMib = 1 << 20;

/// The derived figures of one test.
struct Row {
  Spread spread;
  std::optional<double> gb_per_s;
  std::optional<double> read_share;
  std::optional<double> dot_share;
  std::optional<Comparison> comparison;
};

Row make_row(const BenchReport& report, const Measurement& measurement) {
  Row row;
  row.spread = spread_of(figures(measurement));
  row.gb_per_s = gb_per_s(report.model, measurement);
  const auto peaks = report.peaks.find(measurement.threads);
  if (peaks != report.peaks.end() && !measurement.test.is_latency()) {
    const Peaks& best = peaks->second.best();
    row.read_share = *row.gb_per_s / best.read_gb_per_s;
    row.dot_share = *gmac_per_s(report.model, measurement) / best.dot_gmac_per_s;
  }
  if (report.baseline) row.comparison = report.baseline->compare(report.model, measurement);
  return row;
}

OrderedJson or_null(const std::optional<double>& value) {
  return value ? OrderedJson(*value) : OrderedJson(nullptr);
}

OrderedJson spread_json(const Spread& spread) {
  return {{"median", spread.median}, {"min", spread.min}, {"max", spread.max}};
}

double milliseconds(double seconds) { return seconds * 1e3; }

/// The limits that were measured with that many threads; none without peaks.
ProfileLimits limits_of(const BenchReport& report, int threads) {
  const auto peaks = report.peaks.find(threads);
  if (peaks == report.peaks.end()) return {};
  const Peaks& best = peaks->second.best();
  return {best.read_gb_per_s, best.dot_gmac_per_s};
}

/// Seconds of all repetitions.
double total_seconds(const Measurement& m) {
  return std::accumulate(m.seconds.begin(), m.seconds.end(), 0.0);
}

std::string profiles_text(const BenchReport& report) {
  std::string text;
  for (const Measurement& m : report.measurements) {
    for (const OpProfile* profile : {&m.profile.batch, &m.profile.one_row}) {
      const std::string table =
          profile_table(fmt::format("{}, {} threads", m.test.name(), m.threads), *profile,
                        total_seconds(m), limits_of(report, m.threads));
      if (!table.empty()) text += '\n' + table;
    }
  }
  return text;
}

OrderedJson profile_json(const Measurement& m) {
  OrderedJson json = OrderedJson::object();
  for (const OpProfile* profile : {&m.profile.batch, &m.profile.one_row}) {
    if (profile->passes == 0) continue;
    const double workers = std::chrono::duration<double>(profile->worker_time) /
                           std::chrono::duration<double>(profile->wall);
    for (std::size_t i = 0; i < kPassOps; ++i) {
      const OpTotals& op = profile->ops[i];
      if (op.calls == 0) continue;
      const double seconds = std::chrono::duration<double>(op.time).count() / workers;
      json[std::string(pass_op_name(static_cast<PassOp>(i)))] = {
          {"calls", op.calls},
          {"ms", milliseconds(seconds)},
          {"share", seconds / total_seconds(m)},
          {"gb_per_s", op.bytes / seconds * 1e-9},
          {"gmac_per_s", op.macs / seconds * 1e-9}};
    }
  }
  return json;
}

/// A part of a start and what it is called.
struct StartPart {
  std::string_view name;
  std::string_view title;
  double (*seconds)(const StartParts&);
};
constexpr std::array kStartParts = {
    StartPart{"open", "open", [](const StartParts& s) { return s.load.open; }},
    StartPart{"tokenizer", "tokenizer", [](const StartParts& s) { return s.load.tokenizer; }},
    StartPart{"weights", "weights", [](const StartParts& s) { return s.load.weights; }},
    StartPart{"first_token", "first token", [](const StartParts& s) { return s.first_token; }}};

double median_milliseconds(const Measurement& m, const StartPart& part) {
  std::vector<double> seconds;
  for (const StartParts& start : m.starts) seconds.push_back(part.seconds(start));
  return milliseconds(percentile(seconds, 0.5));
}

OrderedJson start_json(const Measurement& m) {
  OrderedJson json;
  for (const StartPart& part : kStartParts)
    json[std::string(part.name)] = median_milliseconds(m, part);
  return json;
}

OrderedJson row_json(const BenchReport& report, const Measurement& measurement) {
  const Row row = make_row(report, measurement);
  const BenchTest& test = measurement.test;
  OrderedJson json = {{"test", test.name()},
                      {"model", report.model.name},
                      {"type", report.model.type},
                      {"threads", measurement.threads},
                      {"isa", isa_name(measurement.isa)},
                      {"kv", kv_name(measurement.kv)},
                      {test.is_latency() ? "ms" : "tokens_per_s", spread_json(row.spread)},
                      {"gb_per_s", or_null(row.gb_per_s)},
                      {"read_bandwidth_share", or_null(row.read_share)},
                      {"dot_peak_share", or_null(row.dot_share)},
                      {"peak_rss_mib", static_cast<double>(measurement.peak_rss_bytes) / kMib}};
  if (!measurement.token_seconds.empty()) {
    json["tbt_ms"] = {{"p50", milliseconds(percentile(measurement.token_seconds, 0.5))},
                      {"p99", milliseconds(percentile(measurement.token_seconds, 0.99))}};
  }
  if (report.baseline) {
    json["compare"] = row.comparison ? OrderedJson{{"old", spread_json(row.comparison->old)},
                                                   {"speedup", row.comparison->speedup},
                                                   {"overlap", row.comparison->overlap}}
                                     : OrderedJson(nullptr);
  }
  if (!measurement.starts.empty()) json["start_ms"] = start_json(measurement);
  if (const OrderedJson profile = profile_json(measurement); !profile.empty())
    json["profile"] = profile;
  json.update({{"samples", figures(measurement)},
               {"n_tokens", test.n_tokens},
               {"depth", test.depth},
               {"batch", test.batch},
               {"cache", test.cache},
               {"tokens_per_pass", test.step},
               {"compute", measurement.compute == Compute::kInt8 ? "int8" : "f32"},
               {"file_bytes", report.model.file_bytes},
               {"n_weights", report.model.n_weights},
               {"cpu", cpu_name()},
               {"engine_version", version()},
               {"schema_version", kBenchSchemaVersion}});
  return json;
}

OrderedJson peaks_json(const BenchReport& report, int threads, const Peaks& peaks) {
  return {{"read_gb_per_s", peaks.read_gb_per_s},
          {"dot_gmac_per_s", peaks.dot_gmac_per_s},
          {"read_gb_per_s_one_thread", peaks.read_gb_per_s_one_thread},
          {"dot_gmac_per_s_one_thread", peaks.dot_gmac_per_s_one_thread},
          {"threads", threads},
          {"isa", isa_name(report.peak_isa)},
          {"cpu", cpu_name()},
          {"schema_version", kBenchSchemaVersion}};
}

using Table = std::vector<std::vector<std::string>>;

std::string percent(const std::optional<double>& share) {
  return share ? fmt::format("{:.1f} %", *share * 100) : "";
}

/// Text of a model may hold anything; a cell is one line without bars.
std::string cell(const std::string& text) {
  std::string out = shown(text);
  std::ranges::replace(out, '|', '?');
  return out;
}

std::string comparison_cell(const std::optional<Comparison>& comparison) {
  if (!comparison) return "";
  return fmt::format("{:.3f} x{}", comparison->speedup, comparison->overlap ? " (~)" : "");
}

std::vector<std::string> table_row(const BenchReport& report, const Measurement& m) {
  const Row row = make_row(report, m);
  const std::string spread =
      fmt::format("{:.2f} [{:.2f}, {:.2f}]", row.spread.median, row.spread.min, row.spread.max);
  std::string latency = m.test.is_latency() ? spread : "";
  if (!m.token_seconds.empty()) {
    latency = fmt::format("p50 {:.2f}, p99 {:.2f}", milliseconds(percentile(m.token_seconds, 0.5)),
                          milliseconds(percentile(m.token_seconds, 0.99)));
  }
  std::vector<std::string> cells = {
      cell(report.model.name),
      report.model.type,
      fmt::format("{:.2f} MiB", static_cast<double>(report.model.file_bytes) / kMib),
      fmt::format("{:.2f} M", static_cast<double>(report.model.n_weights) * 1e-6),
      std::string(isa_name(m.isa)),
      fmt::format("{}", m.threads),
      std::string(kv_name(m.kv)),
      m.test.name(),
      m.test.is_latency() ? "" : spread,
      latency,
      row.gb_per_s ? fmt::format("{:.2f}", *row.gb_per_s) : "",
      percent(row.read_share),
      percent(row.dot_share),
      fmt::format("{:.1f}", static_cast<double>(m.peak_rss_bytes) / kMib)};
  if (report.baseline) cells.push_back(comparison_cell(row.comparison));
  return cells;
}

/// Columns padded to their widest cell; all but the first `n_left` to the right.
std::string aligned(const Table& table, std::size_t n_left) {
  std::vector<std::size_t> widths(table[0].size(), 3);
  for (const auto& row : table) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (std::size_t r = 0; r < table.size(); ++r) {
    for (std::size_t c = 0; c < table[r].size(); ++c) {
      text += c < n_left ? fmt::format("| {:<{}} ", table[r][c], widths[c])
                         : fmt::format("| {:>{}} ", table[r][c], widths[c]);
    }
    text += "|\n";
    if (r > 0) continue;
    for (std::size_t c = 0; c < widths.size(); ++c) {
      const std::string dashes(widths[c], '-');
      text += c < n_left ? fmt::format("| {} ", dashes) : fmt::format("| {}:", dashes);
    }
    text += "|\n";
  }
  return text;
}

/// The parts of each start; nothing where none was measured.
std::string starts_text(const BenchReport& report) {
  Table table = {{"start, ms"}};
  for (const StartPart& part : kStartParts) table[0].emplace_back(part.title);
  for (const Measurement& m : report.measurements) {
    if (m.starts.empty()) continue;
    auto& row = table.emplace_back(1, m.test.name());
    for (const StartPart& part : kStartParts)
      row.push_back(fmt::format("{:.2f}", median_milliseconds(m, part)));
  }
  return table.size() > 1 ? '\n' + aligned(table, 1) : "";
}

}  // namespace

std::string report_json(const BenchReport& report) {
  OrderedJson json = OrderedJson::array();
  for (const Measurement& m : report.measurements) json.push_back(row_json(report, m));
  if (report.show_peaks) {
    for (const auto& [threads, meter] : report.peaks) {
      json.push_back(peaks_json(report, threads, meter.best()));
    }
  }
  return json_text(json, 2) + '\n';
}

std::string report_markdown(const BenchReport& report) {
  std::string text;
  if (!report.measurements.empty()) {
    Table table = {{"model", "type", "size", "params", "isa", "threads", "kv", "test", "t/s", "ms",
                    "GB/s", "of read peak", "of dot peak", "RSS MiB"}};
    if (report.baseline) table[0].emplace_back("vs old");
    for (const Measurement& m : report.measurements) table.push_back(table_row(report, m));
    text += aligned(table, 2);
  }
  text += starts_text(report);
  text += profiles_text(report);
  if (!report.show_peaks) return text;
  Table table = {{"cpu", "isa", "threads", "read GB/s", "one thread", "dot GMAC/s", "one thread"}};
  for (const auto& [threads, meter] : report.peaks) {
    const Peaks& best = meter.best();
    table.push_back({cell(std::string(cpu_name())), std::string(isa_name(report.peak_isa)),
                     fmt::format("{}", threads), fmt::format("{:.2f}", best.read_gb_per_s),
                     fmt::format("{:.2f}", best.read_gb_per_s_one_thread),
                     fmt::format("{:.1f}", best.dot_gmac_per_s),
                     fmt::format("{:.1f}", best.dot_gmac_per_s_one_thread)});
  }
  if (!text.empty()) text += '\n';
  return text + aligned(table, 2);
}

}  // namespace llm
