#include "tools/llmcheck/equivalence.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <ctime>
#include <filesystem>
#include <functional>
#include <span>
#include <utility>

#include "base/atomic_file.h"
#include "tools/common/option_pages.h"
#include "tools/common/tool.h"
#include "validate/text/equivalence/equivalence.h"

namespace llm {
namespace {

constexpr std::size_t kMaxFrozenBytes = std::size_t{16} << 20;

Result<FrozenTexts> read_frozen(const std::string& path) {
  LLM_TRY(const std::string text, read_text_file(path, kMaxFrozenBytes));
  auto frozen = parse_frozen(text);
  if (!frozen.ok()) return in_file(std::move(frozen).error(), path);
  return frozen;
}

Status freeze(const CheckArguments& a, const std::shared_ptr<const Model>& model,
              const std::string& sha256, ProgressBar& bar) {
  FrozenTexts made;
  made.origin = {.model_sha256 = sha256,
                 .text_sha256 = {},
                 .engine_version = version(),
                 .timestamp = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))),
                 .reason = a.update_equivalence};
  LLM_TRY(made.cases, run_cases(model, std::ref(bar)));
  bar.clear();
  if (std::filesystem::exists(a.equivalence)) {
    LLM_TRY(const FrozenTexts old, read_frozen(a.equivalence));
    auto allowed = check_replaces(made, old);
    if (!allowed.ok()) return in_file(std::move(allowed).error(), a.equivalence);
  }
  const std::string json = frozen_json(made);
  return write_file_atomically(a.equivalence, std::as_bytes(std::span(json)));
}

}  // namespace

Status run_equivalence(const CheckArguments& a, const std::shared_ptr<const Model>& model,
                       const std::string& sha256, ProgressBar& bar, Report& report) {
  if (!a.update_equivalence.empty()) return freeze(a, model, sha256, bar);
  LLM_TRY(const FrozenTexts frozen, read_frozen(a.equivalence));
  if (frozen.origin.model_sha256 != sha256) {
    return in_file(
        Error{ErrorCode::kIntegrity, "model_sha256",
              fmt::format("found {}, need {}, the model's", frozen.origin.model_sha256, sha256)},
        a.equivalence);
  }
  auto outcome = check_equivalence(model, frozen, std::ref(bar));
  bar.clear();
  if (!outcome.ok()) return in_file(std::move(outcome).error(), a.equivalence);
  report.facts.emplace_back(
      "equivalence", fmt::format("{} (frozen {}: {})", a.equivalence, frozen.origin.timestamp,
                                 frozen.origin.reason));
  for (CheckResult& check : outcome->checks) report.checks.push_back(std::move(check));
  report.figures.push_back(std::move(outcome->speedup));
  for (std::string& line : outcome->not_covered) report.not_covered.push_back(std::move(line));
  return Ok{};
}

}  // namespace llm
