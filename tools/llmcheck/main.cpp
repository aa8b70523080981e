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
#include "tools/common/output_paths.h"
#include "tools/common/progress.h"
#include "tools/common/signals.h"
#include "tools/common/tool.h"
#include "tools/llmcheck/arguments.h"
#include "tools/llmcheck/equivalence.h"
#include "tools/llmcheck/facts.h"
#include "tools/llmcheck/load.h"
#include "tools/llmcheck/quality.h"
#include "tools/llmcheck/reference.h"
#include "tools/llmcheck/replay.h"
#include "tools/llmcheck/verify.h"
#include "tools/llmtok/check.h"
#include "validate/reference/dump/engine_dump.h"
#include "validate/reference/dump/find_model.h"
#include "validate/report/report.h"
#include "validate/report/text.h"
#include "validate/self/self_check.h"

namespace llm {
namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;
constexpr std::chrono::seconds kLineEvery{15};
using ModelPointer = std::shared_ptr<const Model>;

class Check {
 public:
  Check(const CheckArguments& arguments, const ToolContext& context)
      : a_(arguments),
        command_(context.command_line),
        bar_(!context.quiet(), "steps", kLineEvery),
        verbose_(context.verbosity > 0) {}

  Result<int> run() {
    LLM_RETURN_IF_ERROR(check_arguments(a_));
    LLM_RETURN_IF_ERROR(check_outputs());
    if (!a_.layer_diff.empty()) {
      LLM_TRY(Dump reference, Dump::load(a_.layer_diff));
      reference_ = std::make_unique<Dump>(std::move(reference));
    }
    if (!a_.stages.empty()) {
      LLM_TRY(Dump reference, Dump::load(a_.stages));
      stages_ = std::make_unique<Dump>(std::move(reference));
    }
    if (!a_.verify.empty()) {
      LLM_TRY(VerifyReference reference, load_verify_reference(a_));
      verify_reference_ = std::make_unique<VerifyReference>(std::move(reference));
    }
    if (!a_.replay.empty()) {
      LLM_TRY(receipt_, load_receipt(a_));
    }
    LLM_RETURN_IF_ERROR(choose_model());
    if (reference_)
      LLM_RETURN_IF_ERROR(run_layer_diff(a_, *reference_, loader(), sha256_, bar_, report_));
    if (stages_) LLM_RETURN_IF_ERROR(run_stages(a_, *stages_, loader(), sha256_, bar_, report_));
    if (!a_.equivalence.empty()) LLM_RETURN_IF_ERROR(equivalence());
    if (!a_.tokenizer.empty()) LLM_RETURN_IF_ERROR(check_tokenizer());
    if (checks_self()) LLM_RETURN_IF_ERROR(self());
    if (verify_reference_)
      LLM_RETURN_IF_ERROR(run_verify_check(a_, *verify_reference_, path_, sha256_, bar_, report_));
    if (receipt_)
      LLM_RETURN_IF_ERROR(run_replay(a_, *receipt_, loader(), path_, sha256_, bar_, report_));
    LLM_RETURN_IF_ERROR(run_quality_checks(a_, path_, sha256_, bar_, report_));
    FirstError error;
    if (!a_.dump.empty()) error.add(dump());
    bar_.clear();
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
  int exit_code() const {
    if (!report_.has_verdict() || report_.passed()) return 0;
    return report_.verdict() == Verdict::kFail ? kExitVerdictFailed : kExitUndecided;
  }

  /// A model alone is checked against the definition.
  bool checks_self() const {
    const bool other = reference_ || stages_ || !a_.equivalence.empty() || verify_reference_ ||
                       receipt_ || !a_.tokenizer.empty() || !a_.dump.empty() || !a_.ppl.empty() ||
                       !a_.kld.empty() || !a_.quality.empty();
    return a_.self || !other;
  }

  /// What is written after minutes of work can be written.
  Status check_outputs() const {
    std::vector<std::string> read = {a_.model,     a_.layer_diff, a_.stages, a_.verify,
                                     a_.tokenizer, a_.replay,     a_.ppl,    a_.kld,
                                     a_.quality,   a_.against,    a_.limits};
    read.insert(read.end(), a_.also.begin(), a_.also.end());
    if (a_.update_equivalence.empty()) read.push_back(a_.equivalence);
    for (const auto& path : a_.reports) LLM_RETURN_IF_ERROR(check_output("--report", path, read));
    if (!a_.update_equivalence.empty())
      LLM_RETURN_IF_ERROR(check_output("--equivalence", a_.equivalence, read));
    if (!a_.update_baseline.empty()) {
      LLM_RETURN_IF_ERROR(check_output("--baseline", a_.baseline + "/figures.json", read));
    }
    return a_.dump.empty() ? Status(Ok{}) : check_output("--dump", a_.dump, read);
  }

  Status choose_model() {
    path_ = a_.model;
    if (path_.empty() && reference_) {
      LLM_TRY(path_, find_model_by_hash(reference_->meta().model_sha256, a_.layer_diff));
    } else if (path_.empty() && stages_) {
      LLM_TRY(path_, find_model_by_hash(stages_->meta().model_sha256, a_.stages));
    } else if (path_.empty() && receipt_) {
      LLM_TRY(path_, find_model_by_hash(receipt_->model_sha256, a_.replay));
    } else if (path_.empty()) {
      LLM_TRY(path_, find_model_by_hash(verify_reference_->model_sha256, a_.verify));
    }
    guard_mapped_file(path_);
    LLM_TRY(sha256_, file_sha256(path_));
    report_.facts = run_facts(a_, command_, path_, sha256_);
    return Ok{};
  }

  LoadMode loader() {
    return [this](Compute compute) { return load(compute); };
  }

  /// The model, read once, computed in that mode.
  Result<ModelPointer> load(Compute compute) {
    if (!model_) {
      LLM_TRY(model_, load_for_check(a_, path_, sha256_, compute, bar_));
    }
    return model_->with_compute(compute);
  }

  Status equivalence() {
    LLM_TRY(const ModelPointer model, load(Compute::kInt8));
    return run_equivalence(a_, model, sha256_, bar_, report_);
  }

  Status check_tokenizer() {
    LLM_TRY(const ModelPointer model, load(Compute::kInt8));
    LLM_TRY(const std::string text, read_text_file(a_.tokenizer, kMaxTextBytes));
    auto checked = check_tokens(model->tokenizer(), text, false);
    if (!checked.ok()) return in_file(std::move(checked).error(), a_.tokenizer);
    std::string detail = fmt::format("{}/{} texts match", checked->matched, checked->total);
    if (!checked->passed() && !checked->mismatches.empty())
      detail += fmt::format("; the first difference is in line {}", checked->mismatches[0].line);
    report_.checks.push_back({"token ids equal the reference's", checked->passed(), detail});
    return Ok{};
  }

  Status self() {
    SelfCheckOptions options;
    options.text = a_.prompt;
    options.threads = a_.threads;
    options.model_sha256 = sha256_;
    options.progress = std::ref(bar_);
    options.fail_fast = a_.fail_fast;
    options.packed_cache = a_.packed_cache;
    auto outcome = self_check(path_, options);
    bar_.clear();
    if (!outcome.ok()) return in_file(std::move(outcome).error(), path_);
    for (const std::string& warning : outcome->warnings) spdlog::warn("{}: {}", path_, warning);
    for (auto& result : outcome->results) report_.checks.push_back(std::move(result));
    report_.not_covered = std::move(outcome->not_covered);
    return Ok{};
  }

  Status dump() {
    const auto compute = a_.compute == CheckCompute::kF32 ? Compute::kF32 : Compute::kInt8;
    LLM_TRY(const ModelPointer model, load(compute));
    std::vector<TokenId> tokens = model->tokenizer().encode(a_.prompt);
    if (reference_) tokens.assign(reference_->tokens().begin(), reference_->tokens().end());
    if (tokens.size() > model->config().context) {
      return Error{ErrorCode::kUsage, "-p",
                   fmt::format("found {} tokens, need at most {} (the context)", tokens.size(),
                               model->config().context)};
    }
    ExecutorOptions options;
    options.kv = a_.cache_for(compute);
    options.context = tokens.size();
    LLM_TRY(const Dump made,
            record_activations(model, options, false, tokens, "llmcheck", sha256_));
    return made.write(a_.dump);
  }

  /// The verdict in a clause, and what to do next.
  void conclude() {
    if (!report_.has_verdict()) return;
    const auto add = [&](std::string line) { report_.next.push_back(std::move(line)); };
    if (report_.verdict() == Verdict::kUndecided) {
      report_.summary = "nothing failed, but something could not be decided: see below";
      add(stages_ ? "a reference with the taps of all layers (tools/oracle) judges more"
                  : "more documents in the text of --quality decide more");
      return;
    }
    if (!report_.passed()) {
      report_.summary = "something is wrong: see below";
      if (stages_)
        add(fmt::format("llmcheck {} --layer-diff {} shows every tap of every layer", path_,
                        a_.stages));
      if (!report_.diffs.empty() && !verbose_)
        add("-v shows every tap, --report FILE.html keeps all");
      if (!checks_self())
        add(fmt::format("llmcheck {} --self tells whether this CPU's fast paths are right", path_));
      return;
    }
    report_.summary = reference_ || stages_ ? "the model computes what the reference says"
                      : receipt_            ? "the model gives what the receipt says"
                      : checks_self()       ? "what was run equals the definition"
                                            : "every check passed";
    if ((reference_ || stages_) && !a_.self)
      add(fmt::format("llmcheck {} --self covers the other instruction sets, threads and batches",
                      path_));
    if (checks_self() && !reference_ && !verify_reference_)
      add("--layer-diff REF.npz holds the file against another program (tools/oracle)");
  }

  const CheckArguments& a_;
  std::span<const char* const> command_;
  ProgressBar bar_;
  bool verbose_;
  std::unique_ptr<Dump> reference_;  ///< of --layer-diff
  std::unique_ptr<Dump> stages_;
  std::unique_ptr<VerifyReference> verify_reference_;
  std::optional<Receipt> receipt_;  ///< of --replay
  ModelPointer model_;
  std::string path_;
  std::string sha256_;
  Report report_;
};

}  // namespace
}  // namespace llm

int main(int argc, char** argv) {
  std::optional<llm::CheckArguments> arguments;  // its texts need memory, which may be refused
  return llm::run_tool(
      argc, argv, [&] { return llm::make_check_table(arguments.emplace()); },
      [&](const llm::ToolContext& context) { return llm::Check(*arguments, context).run(); });
}
