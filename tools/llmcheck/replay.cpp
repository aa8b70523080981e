#include "tools/llmcheck/replay.h"

#include <fmt/core.h>

#include <functional>
#include <utility>

#include "tools/common/tool.h"
#include "validate/receipt/read_receipt.h"
#include "validate/receipt/replay_receipt.h"

namespace llm {
namespace {

constexpr std::size_t kMaxReceiptBytes = std::size_t{256} << 20;

}  // namespace

Result<Receipt> load_receipt(const CheckArguments& a) {
  LLM_TRY(const std::string text, read_text_file(a.replay, kMaxReceiptBytes));
  auto receipt = parse_receipt(text);
  if (!receipt.ok()) return in_file(std::move(receipt).error(), a.replay);
  return receipt;
}

Status run_replay(const CheckArguments& a, const Receipt& receipt, const LoadMode& load,
                  const std::string& path, const std::string& sha256, ProgressBar& bar,
                  Report& report) {
  if (receipt.model_sha256 != sha256) {
    return Error{
        .code = ErrorCode::kIntegrity,
        .field = "model.sha256",
        .message = fmt::format("found {}, need {}, the model's", receipt.model_sha256, sha256),
        .file = a.replay};
  }
  LLM_TRY(const auto model, load(receipt.compute));
  auto outcome = replay_receipt(model, receipt, std::ref(bar));
  bar.clear();
  if (!outcome.ok()) {
    Error error = std::move(outcome).error();
    const bool of_model = error.code == ErrorCode::kNonFinite || error.code == ErrorCode::kResource;
    return in_file(std::move(error), of_model ? path : a.replay);
  }
  report.facts.emplace_back("receipt", fmt::format("{} (by llmrun {}; {} tokens after {})",
                                                   a.replay, receipt.engine_version,
                                                   receipt.ids.size(), receipt.prompt_ids.size()));
  report.facts.emplace_back(
      "replayed", fmt::format("{} positions in {:.3f} s", outcome->n_positions, outcome->seconds));
  for (CheckResult& check : outcome->checks) report.checks.push_back(std::move(check));
  return Ok{};
}

}  // namespace llm
