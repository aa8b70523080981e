#include "tools/llmcheck/run.h"

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <ctime>
#include <functional>
#include <iterator>
#include <string_view>

#include "base/cpu_features.h"
#include "base/thread_team.h"
#include "tools/common/option_pages.h"

namespace llm {
namespace {

/// A word as a shell reads it, in single quotes where it must be.
std::string shell_word(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,@%+";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos)
    return std::string(word);
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string command_line(std::span<const char* const> words) {
  std::string line;
  for (const char* word : words) line += (line.empty() ? "" : " ") + shell_word(word);
  return line;
}

}  // namespace

Result<ModelPointer> CheckRun::load_file(const std::string& file, const std::string& hash,
                                         Compute compute) {
  auto read = Model::load(file, {.compute = compute,
                                 .isa = a.isa,
                                 .threads = a.threads,
                                 .expected_sha256 = hash,
                                 .defer_packing = !a.opening.empty(),
                                 .packed_cache = a.packed_cache,
                                 .progress = std::ref(bar)});
  bar.clear();
  LLM_TRY(const ModelPointer model, in_file(std::move(read), file));
  spdlog::debug("{}: computed with {} by {} threads", file, isa_name(model->isa()),
                model->threads());
  for (const auto& warning : model->warnings()) spdlog::warn("{}: {}", file, warning);
  return model;
}

Result<ModelPointer> CheckRun::load(Compute compute) {
  if (!loaded) {
    LLM_TRY(loaded, load_file(path, sha256, compute));
  }
  return loaded->with_compute(compute);
}

void CheckRun::add(std::vector<CheckResult> checks) {
  report.checks.insert(report.checks.end(), std::make_move_iterator(checks.begin()),
                       std::make_move_iterator(checks.end()));
}

BaselineOrigin CheckRun::origin(const std::string& reason, const std::string& text_sha256) const {
  return {.model_sha256 = sha256,
          .text_sha256 = text_sha256,
          .engine_version = version(),
          .timestamp = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))),
          .reason = reason};
}

Status CheckRun::check_hash(const std::string& found, const std::string& field,
                            const std::string& file, const std::string& hint) const {
  if (found == sha256) return Ok{};
  return Error{.code = ErrorCode::kIntegrity,
               .field = field,
               .message = fmt::format("found {}, need {}, the model's", found, sha256),
               .file = file,
               .hint = hint};
}

std::vector<std::pair<std::string, std::string>> run_facts(const CheckRun& run,
                                                           std::span<const char* const> command) {
  const int threads = run.a.threads > 0 ? run.a.threads : available_cpus();
  std::vector<std::pair<std::string, std::string>> facts = {
      {"llmcheck", version()},
      {"date", fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(std::time(nullptr)))},
      {"command", command_line(command)},
      {"model", run.path},
      {"sha256", run.sha256},
      {"CPU", std::string(cpu_name())},
      {"isa", std::string(isa_name(run.a.isa.value_or(best_isa())))},
      {"threads", fmt::format("{}", threads)}};
  // A log of receipts is checked without a model.
  std::erase_if(facts, [](const auto& fact) { return fact.second.empty(); });
  return facts;
}

}  // namespace llm
