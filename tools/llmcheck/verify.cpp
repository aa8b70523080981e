#include "tools/llmcheck/verify.h"

#include <fmt/core.h>

#include <functional>
#include <memory>
#include <utility>

#include "base/shown_text.h"
#include "tools/common/tool.h"
#include "tools/llmcheck/load.h"
#include "validate/text/verify/run.h"
#include "validate/text/verify/verdict.h"

namespace llm {
namespace {

constexpr std::size_t kMaxReferenceBytes = std::size_t{16} << 20;

/// Which gate the two hashes and the options call for.
Result<VerifyGate> choose_gate(const CheckArguments& a, const VerifyReference& reference,
                               const std::string& sha256) {
  if (reference.model_sha256 == sha256) return VerifyGate::kStrict;
  if (a.verify_quantized) return VerifyGate::kQuantized;
  return Error{
      .code = ErrorCode::kIntegrity,
      .field = "model_sha256",
      .message = fmt::format("found {}, need {}, the model's", reference.model_sha256, sha256),
      .file = a.verify,
      .hint = "--verify-quantized takes a reference made from another quantization"};
}

std::string describe(const CheckArguments& a, const VerifyReference& reference, VerifyGate gate) {
  return fmt::format(
      "{} ({} by {} from {}, {} x {} tokens{})", a.verify, reference.oracle, reference.producer,
      gate == VerifyGate::kStrict ? "this file"
                                  : fmt::format("another file of {}", quoted(reference.model_name)),
      reference.prompts.size(), reference.n_steps,
      gate == VerifyGate::kStrict ? "" : "; gate for quantizations");
}

}  // namespace

Result<VerifyReference> load_verify_reference(const CheckArguments& a) {
  LLM_TRY(const std::string text, read_text_file(a.verify, kMaxReferenceBytes));
  auto reference = parse_verify_reference(text);
  if (!reference.ok()) return in_file(std::move(reference).error(), a.verify);
  if (a.verify_quick) keep_quick_prompts(*reference);
  return reference;
}

Status run_verify_check(const CheckArguments& a, const VerifyReference& reference,
                        const std::string& path, const std::string& sha256, ProgressBar& bar,
                        Report& report) {
  LLM_TRY(const VerifyGate gate, choose_gate(a, reference, sha256));
  std::shared_ptr<const Model> model;
  const auto load = [&](Compute compute) -> Result<std::shared_ptr<const Model>> {
    if (!model) {
      LLM_TRY(model, load_for_check(a, path, sha256, compute, bar));
    }
    return model->with_compute(compute);
  };
  auto outcome = run_verify(reference, gate, load, std::ref(bar));
  bar.clear();
  if (!outcome.ok()) {
    Error error = std::move(outcome).error();
    const bool of_model = error.code == ErrorCode::kNonFinite || error.code == ErrorCode::kResource;
    return in_file(std::move(error), of_model ? path : a.verify);
  }
  report.facts.emplace_back("verify", describe(a, reference, gate));
  const Tokenizer& tokenizer = model->tokenizer();
  report.figures.push_back(
      verify_table(*outcome, fmt::format("Greedy tokens against {}", a.verify),
                   [&](TokenId id) { return quoted(tokenizer.piece_text(id, true)); }));
  report.figures.push_back(verify_errors_table(*outcome));
  for (CheckResult& check : verify_checks(*outcome)) report.checks.push_back(std::move(check));
  return Ok{};
}

}  // namespace llm
