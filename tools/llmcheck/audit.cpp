// The parts of llmcheck that commit a receipt to its rows, open some, and check those that were
// opened.

#include "validate/provenance/audit.h"

#include <fmt/core.h>

#include <functional>
#include <span>

#include "base/atomic_file.h"
#include "base/mapped_file.h"
#include "tools/llmcheck/run.h"
#include "validate/provenance/audit_proof.h"

namespace llm {

Status run_commit(CheckRun& run, Receipt receipt) {
  LLM_TRY(const auto model, run.load(receipt.compute));
  LLM_TRY(receipt.rows_sha256,
          run.ended(rows_sha256(model, receipt, std::ref(run.bar)), run.a.replay.front()));
  const std::string json = receipt_json(receipt);
  return write_file_atomically(run.a.commit, std::as_bytes(std::span(json)));
}

Status run_audit(CheckRun& run, const Receipt& receipt) {
  const CheckArguments& a = run.a;
  if (!receipt.rows_sha256)
    return Error{.code = ErrorCode::kUnsupported,
                 .field = "rows_sha256",
                 .message = "found no hash of the activations, need a receipt with one",
                 .file = a.audit,
                 .hint = "llmrun --receipt-rows or llmcheck --replay --commit makes one"};
  const Challenge challenge{.text = a.challenge, .rows = a.audit_rows, .draws = a.audit_draws};
  LLM_TRY(const auto model, run.load(receipt.compute));
  if (!a.make_opening.empty()) {
    LLM_TRY(const auto bytes,
            run.ended(open_rows(model, receipt, challenge, std::ref(run.bar)), a.audit));
    return write_file_atomically(a.make_opening, bytes);
  }
  LLM_TRY(const auto file, MappedFile::open(a.opening));
  LLM_TRY(auto outcome,
          run.ended(audit_receipt(model, receipt, challenge, file.bytes()), a.opening));
  run.fact("receipt",
           fmt::format("{} (by llmrun {}; {} tokens after {})", a.audit, receipt.engine_version,
                       receipt.ids.size(), receipt.prompt_ids.size()));
  run.fact("audited", fmt::format("{} of {} rows and {} draws in {:.4f} s", outcome.n_asked,
                                  outcome.n_rows, outcome.n_draws, outcome.seconds));
  for (CheckResult& check : outcome.checks) check.name = "receipt: " + check.name;
  run.add(std::move(outcome.checks));
  return Ok{};
}

}  // namespace llm
