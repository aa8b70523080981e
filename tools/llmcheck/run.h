#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "tools/common/progress.h"
#include "tools/common/tool.h"
#include "tools/llmcheck/arguments.h"
#include "validate/outputs/quality/baseline.h"
#include "validate/outputs/stages/stages.h"
#include "validate/outputs/verify/reference.h"
#include "validate/provenance/receipt.h"
#include "validate/reference/dump/dump.h"
#include "validate/report/report.h"

namespace llm {

using ModelPointer = std::shared_ptr<const Model>;

/// A run of llmcheck: the model, and what its parts find. Each part adds to `report`; errors name
/// the file they come from.
struct CheckRun {
  const CheckArguments& a;
  ProgressBar bar;
  std::string path = {};    ///< the model
  std::string sha256 = {};  ///< its hash, which every load of it must have
  Report report = {};
  ModelPointer loaded = {};  ///< by load()

  /// The model, read once, computed in that mode.
  Result<ModelPointer> load(Compute compute);
  LoadMode loader() {
    return [this](Compute compute) { return load(compute); };
  }
  /// The model at any path, as the options say (--isa, --threads, --packed-cache), with progress;
  /// its warnings are logged. @param sha256  what the file's hash must be; empty: anything
  Result<ModelPointer> load_file(const std::string& file, const std::string& sha256,
                                 Compute compute);

  /// The outcome of a part: the bar goes, an error names `file`, or the model where it is one of
  /// its numbers or of memory.
  template <typename T>
  Result<T> ended(Result<T> outcome, const std::string& file) {
    bar.clear();
    if (outcome.ok()) return outcome;
    const ErrorCode code = outcome.error().code;
    const bool of_model = code == ErrorCode::kNonFinite || code == ErrorCode::kResource;
    return in_file(std::move(outcome), of_model ? path : file);
  }

  void fact(std::string name, std::string value) {
    report.facts.emplace_back(std::move(name), std::move(value));
  }
  void add(std::vector<CheckResult> checks);
  /// Of figures that are frozen now.
  BaselineOrigin origin(const std::string& reason, const std::string& text_sha256 = "") const;
  /// kIntegrity unless `found`, what `file` says of the model, is the model's hash.
  Status check_hash(const std::string& found, const std::string& field, const std::string& file,
                    const std::string& hint = "") const;
};

/// What a report says of the run that made it, in order: version, date (UTC), command line, model
/// and its hash, CPU, instruction set, threads.
/// @param command  argv; shown so that a shell reads the same words
std::vector<std::pair<std::string, std::string>> run_facts(const CheckRun& run,
                                                           std::span<const char* const> command);

/// --layer-diff: the answers to the questions about every tap.
/// Errors: kUnsupported for other positions than 0, 1, 2, ...; kUsage for a mode in which the
/// reference did not compute; kMalformed for one that nothing can be judged by; check_layers()'s.
Status run_layer_diff(CheckRun& run, const Dump& reference);

/// --stages: a check for each stage, and their table. Errors: the same.
Status run_stages(CheckRun& run, const Dump& reference);

/// --equivalence: holds the model against the frozen file, or with --update-equivalence writes it.
/// Errors: kIntegrity for another model's; those of parse_frozen(), check_replaces() and
/// check_equivalence(); kIo.
Status run_equivalence(CheckRun& run);

/// The reference of --verify, with --verify-quick its two prompts only, and the check by it.
/// Errors: kIo, parse_verify_reference()'s; kIntegrity for another file's without
/// --verify-quantized; run_verify()'s.
Result<VerifyReference> load_verify_reference(const CheckArguments& arguments);
Status run_verify_check(CheckRun& run, const VerifyReference& reference);

/// A receipt of --replay, --audit or --compare, or why it cannot be read.
struct GivenReceipt {
  std::string file;
  std::string name;  ///< in reports: the file's, with the line of a log
  Result<Receipt> receipt;
};

/// The receipts of each path in turn, those of a folder by their names.
/// Errors: kIo for a folder or log that cannot be read, kUsage for one without a receipt.
Result<std::vector<GivenReceipt>> read_receipts(const std::vector<std::string>& paths);
/// The first model of theirs that is found by its hash, and that. Errors: of the first receipt.
Result<std::string> find_model(const std::vector<GivenReceipt>& receipts);
/// Their texts made again: one's checks, or a check of all and those that others fail. Receipts of
/// other models than the run's are checked with theirs, unless MODEL was given.
/// Errors: what one alone is refused for; of several, each is an undecided check.
Status run_replay(CheckRun& run, const std::vector<GivenReceipt>& receipts);

/// --compare: where the outputs of two receipts part, and what both runs saw there. A receipt's
/// model is found as for run_replay(). Errors: kUsage for another number of receipts; those of
/// reading them; drawn_from()'s.
Status run_compare(CheckRun& run, const std::vector<GivenReceipt>& receipts);

/// --commit: the receipt with the hash of its rows, after a replay that passed.
/// Errors: rows_sha256()'s; kIo.
Status run_commit(CheckRun& run, Receipt receipt);

/// --audit: an opening made, or checked. @pre the receipt is of this model
/// Errors: kUnsupported for a receipt without a hash of its rows; open_rows()'s or
/// audit_receipt()'s; kIo.
Status run_audit(CheckRun& run, const Receipt& receipt);

/// --judge: asks the server, and judges its answers. Errors: kIo where it is not reached;
/// kMalformed for what is no answer of OpenAI's API; judge_answers()'s.
Status run_judge(CheckRun& run);

/// --receipt-log: the chain, the signatures, and whether the known head is there.
/// Errors: kIo; kMalformed for a key that is none.
Status run_receipt_log(CheckRun& run);

/// --tokenizer, by check_tokens().
Status run_tokenizer(CheckRun& run);

/// --imatrix: the importance matrix of --text, by importance_of_text().
Status run_imatrix(CheckRun& run);

/// The parts that score texts: --ppl, --kld and --quality, as asked.
Status run_quality_checks(CheckRun& run);

}  // namespace llm
