// llmcheck: proves that a model computes what it should, layer by layer, on this CPU.

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tools/common/log.h"
#include "tools/hub/hub_model.h"
#include "tools/llmcheck/run.h"
#include "validate/reference/dump/engine_dump.h"
#include "validate/report/report.h"
#include "validate/report/text.h"
#include "validate/selftest/self_check.h"

namespace llm {
namespace {

constexpr std::chrono::seconds kLineEvery{15};

class Check {
 public:
  Check(const CheckArguments& arguments, const ToolContext& context)
      : a_(arguments),
        command_(context.command_line),
        run_{.a = arguments, .bar = ProgressBar(!context.quiet(), "steps", kLineEvery)},
        verbose_(context.verbosity > 0) {}

  Result<int> run() {
    LLM_RETURN_IF_ERROR(check_arguments(a_));
    LLM_RETURN_IF_ERROR(check_outputs());
    LLM_RETURN_IF_ERROR(read_references());
    if (needs_model()) LLM_RETURN_IF_ERROR(choose_model());
    report_.facts = run_facts(run_, command_);
    if (!a_.receipt_log.empty()) LLM_RETURN_IF_ERROR(run_receipt_log(run_));
    if (reference_) LLM_RETURN_IF_ERROR(run_layer_diff(run_, *reference_));
    if (stages_) LLM_RETURN_IF_ERROR(run_stages(run_, *stages_));
    if (!a_.equivalence.empty()) LLM_RETURN_IF_ERROR(run_equivalence(run_));
    if (!a_.tokenizer.empty()) LLM_RETURN_IF_ERROR(run_tokenizer(run_));
    if (checks_self()) LLM_RETURN_IF_ERROR(self());
    if (verify_reference_) LLM_RETURN_IF_ERROR(run_verify_check(run_, *verify_reference_));
    if (!a_.replay.empty()) LLM_RETURN_IF_ERROR(run_replay(run_, receipts_));
    if (!a_.compare.empty()) LLM_RETURN_IF_ERROR(run_compare(run_, receipts_));
    if (!a_.commit.empty() && report_.passed())
      LLM_RETURN_IF_ERROR(run_commit(run_, *receipts_.front().receipt));
    if (!a_.audit.empty()) LLM_RETURN_IF_ERROR(run_audit(run_, *receipts_.front().receipt));
    if (!a_.judge.empty()) LLM_RETURN_IF_ERROR(run_judge(run_));
    LLM_RETURN_IF_ERROR(run_quality_checks(run_));
    if (!a_.imatrix.empty()) LLM_RETURN_IF_ERROR(run_imatrix(run_));
    FirstError error;
    if (!a_.dump.empty()) error.add(dump());
    run_.bar.clear();
    if (report_.empty()) {
      LLM_RETURN_IF_ERROR(error.status());
      return 0;
    }
    conclude();
    const TextStyle style{.verbose = verbose_, .color = stdout_takes_color()};
    error.add(write_stdout(text_report(report_, style)));
    for (const auto& path : a_.reports) error.add(write_report(report_, path));
    LLM_RETURN_IF_ERROR(error.status());
    return exit_code();
  }

 private:
  /// --audit and --commit are of one receipt.
  Status check_one_receipt() const {
    if (a_.audit.empty() && a_.commit.empty()) return Ok{};
    if (receipts_.size() > 1)
      return usage_error(a_.audit.empty() ? "--replay" : "--audit",
                         fmt::format("found {} receipts, need one{}", receipts_.size(),
                                     a_.audit.empty() ? " for --commit" : ""));
    if (!receipts_.front().receipt.ok())
      return in_file(receipts_.front().receipt.error(), receipts_.front().file);
    return Ok{};
  }

  Status read_references() {
    if (!a_.layer_diff.empty()) {
      LLM_TRY(reference_, Dump::load(a_.layer_diff));
    }
    if (!a_.stages.empty()) {
      LLM_TRY(stages_, Dump::load(a_.stages));
    }
    if (!a_.verify.empty()) {
      LLM_TRY(verify_reference_, load_verify_reference(a_));
    }
    if (!a_.replay.empty() || !a_.audit.empty() || !a_.compare.empty()) {
      LLM_TRY(receipts_, read_receipts(!a_.compare.empty() ? a_.compare
                                       : a_.audit.empty()  ? a_.replay
                                                           : std::vector{a_.audit}));
      LLM_RETURN_IF_ERROR(check_one_receipt());
    }
    return Ok{};
  }

  int exit_code() const {
    if (!report_.has_verdict() || report_.passed()) return 0;
    return report_.verdict() == Verdict::kFail ? kExitVerdictFailed : kExitUndecided;
  }

  /// A log alone is checked without one.
  bool needs_model() const {
    return !a_.model.empty() || reference_ || stages_ || verify_reference_ || !receipts_.empty();
  }

  /// A model alone is checked against the definition.
  bool checks_self() const {
    const bool other = reference_ || stages_ || !a_.equivalence.empty() || verify_reference_ ||
                       !receipts_.empty() || !a_.receipt_log.empty() || !a_.judge.empty() ||
                       !a_.tokenizer.empty() || !a_.dump.empty() || !a_.ppl.empty() ||
                       !a_.kld.empty() || !a_.quality.empty() || !a_.imatrix.empty();
    return a_.self || !other;
  }

  /// What is written after minutes of work can be written.
  Status check_outputs() const {
    std::vector<std::string> read = {a_.model,   a_.layer_diff, a_.stages, a_.verify, a_.tokenizer,
                                     a_.audit,   a_.opening,    a_.ppl,    a_.kld,    a_.quality,
                                     a_.against, a_.limits,     a_.text};
    read.insert(read.end(), a_.also.begin(), a_.also.end());
    read.insert(read.end(), a_.replay.begin(), a_.replay.end());
    read.insert(read.end(), a_.compare.begin(), a_.compare.end());
    if (a_.update_equivalence.empty()) read.push_back(a_.equivalence);
    for (const auto& path : a_.reports) LLM_RETURN_IF_ERROR(check_output("--report", path, read));
    const std::string figures = a_.update_baseline.empty() ? "" : a_.baseline + "/figures.json";
    for (const auto& [option, path] :
         {std::pair("--commit", a_.commit), std::pair("--make-opening", a_.make_opening),
          std::pair("--equivalence", a_.update_equivalence.empty() ? "" : a_.equivalence),
          std::pair("--baseline", figures), std::pair("--dump", a_.dump),
          std::pair("--imatrix", a_.imatrix)})
      if (!path.empty()) LLM_RETURN_IF_ERROR(check_output(option, path, read));
    return Ok{};
  }

  Status choose_model() {
    run_.path = a_.model;
    if (run_.path.empty() && !reference_ && !stages_ && !receipts_.empty()) {
      LLM_TRY(run_.path, find_model(receipts_));
    } else if (run_.path.empty()) {
      const auto [sha256, file] = reference_
                                      ? std::pair(reference_->meta().model_sha256, a_.layer_diff)
                                  : stages_ ? std::pair(stages_->meta().model_sha256, a_.stages)
                                            : std::pair(verify_reference_->model_sha256, a_.verify);
      LLM_TRY(run_.path, find_model_by_hash(sha256, file));
    }
    if (!a_.audit.empty()) {
      run_.sha256 = receipts_.front().receipt->model_sha256;  // loading hashes the file, once
    } else {
      LLM_TRY(run_.sha256, file_sha256(run_.path));
    }
    return Ok{};
  }

  Status self() {
    SelfCheckOptions options;
    options.text = a_.prompt;
    options.threads = a_.threads;
    options.model_sha256 = run_.sha256;
    options.progress = std::ref(run_.bar);
    options.fail_fast = a_.fail_fast;
    options.packed_cache = a_.packed_cache;
    LLM_TRY(auto outcome, run_.ended(self_check(run_.path, options), run_.path));
    for (const std::string& warning : outcome.warnings) spdlog::warn("{}: {}", run_.path, warning);
    run_.add(std::move(outcome.results));
    report_.not_covered = std::move(outcome.not_covered);
    return Ok{};
  }

  Status dump() {
    const auto compute = a_.compute == CheckCompute::kF32 ? Compute::kF32 : Compute::kInt8;
    LLM_TRY(const ModelPointer model, run_.load(compute));
    std::vector<TokenId> tokens = model->tokenizer().encode(a_.prompt);
    if (reference_) tokens.assign(reference_->tokens().begin(), reference_->tokens().end());
    if (tokens.size() > model->config().context) {
      return usage_error("-p", fmt::format("found {} tokens, need at most {} (the context)",
                                           tokens.size(), model->config().context));
    }
    const ExecutorOptions options{.context = tokens.size(), .kv = a_.cache_for(compute)};
    LLM_TRY(const Dump made,
            record_activations(model, options, false, tokens, "llmcheck", run_.sha256));
    return made.write(a_.dump);
  }

  /// The verdict in a clause, and what to do next.
  void conclude() {
    if (!report_.has_verdict() || !report_.summary.empty()) return;
    const auto add = [&](std::string line) { report_.next.push_back(std::move(line)); };
    if (report_.verdict() == Verdict::kUndecided) {
      report_.summary = "nothing failed, but something could not be decided: see below";
      add(stages_ ? "a reference with the taps of all layers (tools/reference_f64) checks more"
          : !receipts_.empty()      ? "each receipt that cannot be checked says why"
          : !a_.receipt_log.empty() ? "--log-head detects whether an empty log was truncated"
                                    : "give --quality a file with more documents");
      return;
    }
    if (!report_.passed()) {
      report_.summary = "something is wrong: see below";
      if (stages_)
        add(fmt::format("llmcheck {} --layer-diff {} shows every tap of every layer", run_.path,
                        a_.stages));
      if (!report_.diffs.empty() && !verbose_)
        add("-v shows every tap, --report FILE.html keeps all");
      if (!checks_self())
        add(fmt::format("llmcheck {} --self tells whether this CPU's fast paths are right",
                        run_.path));
      return;
    }
    report_.summary = reference_ || stages_     ? "the model computes what the reference says"
                      : !a_.audit.empty()       ? "the opened rows are those of the model"
                      : !receipts_.empty()      ? "the model produces the output in the receipt"
                      : !a_.receipt_log.empty() ? "the log was not changed"
                      : checks_self()           ? "all results equal the definition"
                                                : "every check passed";
    if ((reference_ || stages_) && !a_.self)
      add(fmt::format("llmcheck {} --self covers the other instruction sets, threads and batches",
                      run_.path));
    if (checks_self() && !reference_ && !verify_reference_)
      add("--layer-diff REF.npz compares the file with a different program (tools/reference_f64)");
  }

  const CheckArguments& a_;
  std::span<const char* const> command_;
  CheckRun run_;
  Report& report_ = run_.report;
  bool verbose_;
  std::optional<Dump> reference_;  ///< of --layer-diff
  std::optional<Dump> stages_;
  std::optional<VerifyReference> verify_reference_;
  std::vector<GivenReceipt> receipts_;  ///< of --replay, --audit or --compare
};

Result<int> run(CheckArguments& arguments, const ToolContext& context) {
  LLM_RETURN_IF_ERROR(complete_arguments(arguments));
  LLM_RETURN_IF_ERROR(fetch_hub_model(arguments.hub_model, context, arguments.model));
  return Check(arguments, context).run();
}

}  // namespace
}  // namespace llm

int main(int argc, char** argv) {
  return llm::run_tool(argc, argv, llm::make_check_table, llm::run);
}
