// The parts of llmcheck that hold the model against texts: frozen ones, a reference's, and the
// token ids of texts.

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <span>
#include <utility>

#include "base/atomic_file.h"
#include "base/shown_text.h"
#include "tools/llmcheck/run.h"
#include "tools/llmtok/special.h"
#include "validate/outputs/equivalence/equivalence.h"
#include "validate/outputs/importance/importance.h"
#include "validate/outputs/verify/run.h"
#include "validate/outputs/verify/verdict.h"

namespace llm {
namespace {

constexpr std::size_t kMaxReferenceBytes = std::size_t{16} << 20;
constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;

Status freeze(CheckRun& run, const ModelPointer& model) {
  FrozenTexts made{.origin = run.origin(run.a.update_equivalence)};
  LLM_TRY(made.cases, run_cases(model, std::ref(run.bar)));
  run.bar.clear();
  const std::string& file = run.a.equivalence;
  if (std::filesystem::exists(file)) {
    LLM_TRY(const FrozenTexts old, parse_file(file, kMaxReferenceBytes, parse_frozen));
    LLM_RETURN_IF_ERROR(in_file(check_replaces(made, old), file));
  }
  const std::string json = frozen_json(made);
  return write_file_atomically(file, std::as_bytes(std::span(json)));
}

std::string describe(const CheckArguments& a, const VerifyReference& reference, VerifyGate gate) {
  return fmt::format("{} ({} by {} from {}, {} x {} tokens{})", a.verify, reference.oracle,
                     reference.producer,
                     gate == VerifyGate::kStrict
                         ? "this file"
                         : fmt::format("a different file of {}", llm::quoted(reference.model_name)),
                     reference.prompts.size(), reference.n_steps,
                     gate == VerifyGate::kStrict ? "" : "; gate for quantizations");
}

}  // namespace

Status run_equivalence(CheckRun& run) {
  LLM_TRY(const ModelPointer model, run.load(Compute::kInt8));
  if (!run.a.update_equivalence.empty()) return freeze(run, model);
  const std::string& file = run.a.equivalence;
  LLM_TRY(const FrozenTexts frozen, parse_file(file, kMaxReferenceBytes, parse_frozen));
  LLM_RETURN_IF_ERROR(run.check_hash(frozen.origin.model_sha256, "model_sha256", file));
  LLM_TRY(auto outcome, run.ended(check_equivalence(model, frozen, std::ref(run.bar)), file));
  run.fact("equivalence",
           fmt::format("{} (frozen {}: {})", file, frozen.origin.timestamp, frozen.origin.reason));
  run.add(std::move(outcome.checks));
  run.report.figures.push_back(std::move(outcome.speedup));
  for (std::string& line : outcome.not_covered) run.report.not_covered.push_back(std::move(line));
  return Ok{};
}

Result<VerifyReference> load_verify_reference(const CheckArguments& a) {
  LLM_TRY(VerifyReference reference,
          parse_file(a.verify, kMaxReferenceBytes, parse_verify_reference));
  if (a.verify_quick) keep_quick_prompts(reference);
  return reference;
}

Status run_verify_check(CheckRun& run, const VerifyReference& reference) {
  const std::string& file = run.a.verify;
  const bool is_own = reference.model_sha256 == run.sha256;
  if (!run.a.verify_quantized) {
    LLM_RETURN_IF_ERROR(run.check_hash(
        reference.model_sha256, "model_sha256", file,
        "--verify-quantized accepts a reference made from a different quantization"));
  }
  const VerifyGate gate = is_own ? VerifyGate::kStrict : VerifyGate::kQuantized;
  LLM_TRY(const VerifyOutcome outcome,
          run.ended(run_verify(reference, gate, run.loader(), std::ref(run.bar)), file));
  run.fact("verify", describe(run.a, reference, gate));
  LLM_TRY(const ModelPointer model, run.load(Compute::kInt8));
  run.report.figures.push_back(verify_table(
      outcome, fmt::format("Greedy tokens compared with {}", file),
      [&](TokenId id) { return llm::quoted(model->tokenizer().piece_text(id, true)); }));
  run.report.figures.push_back(verify_errors_table(outcome));
  run.add(verify_checks(outcome));
  return Ok{};
}

Status run_imatrix(CheckRun& run) {
  constexpr std::size_t kWindow = 512;  // that of llama-imatrix
  const CheckArguments& a = run.a;
  const auto compute = a.compute == CheckCompute::kF32 ? Compute::kF32 : Compute::kInt8;
  LLM_TRY(const ModelPointer model, run.load(compute));
  LLM_TRY(const std::string text, read_text_file(a.text, Tokenizer::kMaxTextBytes));
  const std::size_t window =
      a.ppl_window > 0 ? a.ppl_window : std::min<std::size_t>(kWindow, model->config().context);
  const ExecutorOptions options{.context = window, .kv = a.cache_for(compute)};
  LLM_TRY(const ImportanceMatrix matrix,
          run.ended(importance_of_text(model, text, a.text, window, options, std::ref(run.bar)),
                    a.text));
  LLM_TRY(const auto bytes, matrix.gguf_bytes());
  LLM_RETURN_IF_ERROR(write_file_atomically(a.imatrix, bytes));
  run.report.figures.push_back({.title = fmt::format("Importance matrix {}", a.imatrix),
                                .name = "importance",
                                .columns = {"text", "matrices", "windows", "tokens in each"},
                                .rows = {{{a.text},
                                          Figure::count(matrix.entries.size()),
                                          Figure::count(matrix.n_chunks),
                                          Figure::count(matrix.chunk_tokens)}}});
  return Ok{};
}

Status run_tokenizer(CheckRun& run) {
  const std::string& file = run.a.tokenizer;
  LLM_TRY(const ModelPointer model, run.load(Compute::kInt8));
  LLM_TRY(const std::string text, read_text_file(file, kMaxTextBytes));
  LLM_TRY(const TokenCheck checked, in_file(check_tokens(model->tokenizer(), text, false), file));
  std::string detail = fmt::format("{}/{} texts match", checked.matched, checked.total);
  if (!checked.passed() && !checked.mismatches.empty())
    detail += fmt::format("; the first difference is in line {}", checked.mismatches[0].line);
  run.add({{"token ids equal the reference's", checked.passed(), detail}});
  return Ok{};
}

}  // namespace llm
