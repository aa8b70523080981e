// llmcheck: proves that a model computes what it should, layer by layer, on this CPU.

#include <fmt/core.h>

#include <algorithm>
#include <climits>
#include <memory>
#include <string>
#include <vector>

#include "tools/common/option_pages.h"
#include "tools/common/progress.h"
#include "tools/common/signals.h"
#include "tools/common/tool.h"
#include "tools/llmcheck/arguments.h"
#include "tools/llmcheck/load.h"
#include "tools/llmcheck/quality.h"
#include "tools/llmcheck/verify.h"
#include "tools/llmtok/check.h"
#include "validate/diff/limits_file.h"
#include "validate/dump/engine_dump.h"
#include "validate/dump/find_model.h"
#include "validate/locate/locate.h"
#include "validate/report/report.h"
#include "validate/self/self_check.h"

namespace llm {
namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;
constexpr std::uint64_t kReplayAll = std::uint64_t{64} << 20;
using ModelPointer = std::shared_ptr<const Model>;

class Check {
 public:
  Check(const CheckArguments& arguments, const ToolContext& context)
      : a_(arguments), bar_(!context.quiet(), "steps") {}

  Result<int> run() {
    LLM_RETURN_IF_ERROR(check_arguments(a_));
    if (!a_.layer_diff.empty()) {
      LLM_TRY(Dump reference, Dump::load(a_.layer_diff));
      reference_ = std::make_unique<Dump>(std::move(reference));
    }
    if (!a_.verify.empty()) {
      LLM_TRY(VerifyReference reference, load_verify_reference(a_));
      verify_reference_ = std::make_unique<VerifyReference>(std::move(reference));
    }
    LLM_RETURN_IF_ERROR(choose_model());
    if (reference_) LLM_RETURN_IF_ERROR(layer_diff());
    if (!a_.tokenizer.empty()) LLM_RETURN_IF_ERROR(check_tokenizer());
    if (a_.self) LLM_RETURN_IF_ERROR(self());
    if (verify_reference_)
      LLM_RETURN_IF_ERROR(run_verify_check(a_, *verify_reference_, path_, sha256_, bar_, report_));
    LLM_RETURN_IF_ERROR(run_quality_checks(a_, path_, bar_, report_));
    if (!a_.dump.empty()) LLM_RETURN_IF_ERROR(dump());
    bar_.clear();
    if (report_.empty()) return 0;
    for (const auto& path : a_.reports) LLM_RETURN_IF_ERROR(write_report(report_, path));
    LLM_RETURN_IF_ERROR(write_stdout(text_report(report_)));
    return report_.passed() || !report_.has_verdict() ? 0 : kExitVerdictFailed;
  }

 private:
  Status choose_model() {
    path_ = a_.model;
    if (path_.empty() && reference_) {
      LLM_TRY(path_, find_model_by_hash(reference_->meta().model_sha256, a_.layer_diff));
    } else if (path_.empty()) {
      LLM_TRY(path_, find_model_by_hash(verify_reference_->model_sha256, a_.verify));
    }
    guard_mapped_file(path_);
    LLM_TRY(sha256_, file_sha256(path_));
    report_.facts = {{"llmcheck", version()},
                     {"model", path_},
                     {"sha256", sha256_},
                     {"CPU", std::string(cpu_name())}};
    return Ok{};
  }

  Result<ModelPointer> load(Compute compute) { return load_for_check(a_, path_, compute, bar_); }

  Status layer_diff() {
    for (std::size_t i = 0; i < reference_->positions().size(); ++i) {
      if (reference_->positions()[i] == static_cast<std::int32_t>(i)) continue;
      return Error{.code = ErrorCode::kUnsupported,
                   .field = "positions",
                   .message = fmt::format("found {} at index {}, need 0, 1, 2, ...",
                                          reference_->positions()[i], i),
                   .file = a_.layer_diff};
    }
    report_.facts.emplace_back(
        "reference",
        fmt::format("{} ({} by {}, {} tokens)", a_.layer_diff, reference_->meta().oracle,
                    reference_->meta().producer, reference_->tokens().size()));
    if (a_.compute != CheckCompute::kInt8)
      LLM_RETURN_IF_ERROR(compare_mode(Compute::kF32, KvType::kF32, "f32"));
    if (a_.compute != CheckCompute::kF32)
      LLM_RETURN_IF_ERROR(compare_mode(Compute::kInt8, KvType::kF16, "int8"));
    return Ok{};
  }

  Status compare_mode(Compute compute, KvType kv, const std::string& name) {
    LLM_TRY(const ModelPointer model, load(compute));
    const std::vector<TokenId> tokens(reference_->tokens().begin(), reference_->tokens().end());
    ExecutorOptions options;
    options.kv = kv;
    options.context = tokens.size();
    LLM_TRY(const Dump fast, record_activations(model, options, false, tokens, "llmcheck", sha256_,
                                                reference_->step_ptr()));
    const Replay replay(model, kv);
    Limits limits =
        default_limits(compute, kv, model->config().n_layers, replay.coarsest_activations());
    if (!a_.limits.empty()) {
      LLM_TRY(const std::string text, read_text_file(a_.limits, kMaxTextBytes));
      auto parsed = parse_limits(text);
      if (!parsed.ok()) return in_file(std::move(parsed).error(), a_.limits);
      limits = std::move(parsed).value();
    }
    const std::string kv_name = kv == KvType::kF32 ? "f32" : "f16";
    LLM_RETURN_IF_ERROR(add_diff(fmt::format("compute {}, KV {}, {} against {}", name, kv_name,
                                             isa_name(model->isa()), reference_->meta().oracle),
                                 name, fast, *reference_, limits));
    LLM_TRY(const Dump plain, record_activations(model, options, true, tokens, "llmcheck", sha256_,
                                                 reference_->step_ptr()));
    LLM_RETURN_IF_ERROR(
        add_diff(fmt::format("compute {}, KV {}, {} against the definition in plain loops (R1)",
                             name, kv_name, isa_name(model->isa())),
                 name + "-definition", fast, plain, exact_limits()));
    return add_location(replay, {.run = fast, .plain = plain, .reference = *reference_});
  }

  /// Preflight, and what is at fault when one of the last two comparisons failed.
  Status add_location(const Replay& replay, LocateInput input) {
    DiffSection& against_reference = report_.diffs[report_.diffs.size() - 2];
    DiffSection& against_definition = report_.diffs.back();
    if (!against_reference.diff.problems.empty()) return Ok{};
    Location location;
    const bool passed = against_reference.passed() && against_definition.passed();
    if (!passed) {
      // Replay costs more than the comparison: of large models, only as deep as need be.
      if (replay.weight_bytes() > kReplayAll) {
        const auto depth = [](const LayerDiff& diff) {
          return diff.first_failing ? diff.rows[*diff.first_failing].layer + 1 : INT_MAX;
        };
        input.max_layers = static_cast<std::size_t>(
            std::max(1, std::min(depth(against_reference.diff), depth(against_definition.diff))));
      }
      LLM_TRY(location, locate(replay, input));
    }
    location.preflight = check_hyper_parameters(reference_->meta(), replay.config());
    LLM_TRY(const auto faults, check_quantizer(replay, *reference_));
    location.preflight.insert(location.preflight.end(), faults.begin(), faults.end());
    DiffSection& section = against_reference.passed() && !against_definition.passed()
                               ? against_definition
                               : against_reference;
    section.location = std::move(location);
    return Ok{};
  }

  Status add_diff(std::string title, std::string name, const Dump& actual, const Dump& reference,
                  const Limits& limits) {
    LLM_TRY(LayerDiff diff, diff_layers(actual, reference, limits));
    report_.diffs.push_back({std::move(title), std::move(name), std::move(diff)});
    return Ok{};
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
    options.progress = std::ref(bar_);
    auto outcome = self_check(path_, options);
    bar_.clear();
    if (!outcome.ok()) return in_file(std::move(outcome).error(), path_);
    for (auto& result : outcome->results) report_.checks.push_back(std::move(result));
    report_.not_covered = std::move(outcome->not_covered);
    return Ok{};
  }

  Status dump() {
    const auto compute = a_.compute == CheckCompute::kF32 ? Compute::kF32 : Compute::kInt8;
    LLM_TRY(const ModelPointer model, load(compute));
    std::vector<TokenId> tokens = model->tokenizer().encode(a_.prompt);
    if (reference_) tokens.assign(reference_->tokens().begin(), reference_->tokens().end());
    ExecutorOptions options;
    options.kv = compute == Compute::kF32 ? KvType::kF32 : KvType::kF16;
    options.context = tokens.size();
    LLM_TRY(const Dump made,
            record_activations(model, options, false, tokens, "llmcheck", sha256_));
    return made.write(a_.dump);
  }

  const CheckArguments& a_;
  ProgressBar bar_;
  std::unique_ptr<Dump> reference_;
  std::unique_ptr<VerifyReference> verify_reference_;
  std::string path_;
  std::string sha256_;
  Report report_;
};

}  // namespace
}  // namespace llm

int main(int argc, char** argv) {
  llm::CheckArguments arguments;
  llm::OptionTable table = llm::make_check_table(arguments);
  return llm::run_tool(table, argc, argv, [&](const llm::ToolContext& context) {
    return llm::Check(arguments, context).run();
  });
}
