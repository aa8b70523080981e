#include "validate/selftest/self_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "engine/model/model.h"
#include "quant/kernels/kernel_table.h"
#include "validate/selftest/definition_check.h"
#include "validate/selftest/kernel_check.h"
#include "validate/selftest/matrix_verdict.h"
#include "validate/selftest/mode_check.h"
#include "validate/selftest/sequence_check.h"
#include "validate/selftest/tokenizer_check.h"

namespace llm {
namespace {

constexpr std::uint64_t kSmallModel = std::uint64_t{64} << 20;

constexpr Lengths kSmall = {337, 40, 40, 40};
constexpr Lengths kLargeInt8 = {40, 2, 14, 8};
constexpr Lengths kLargeF32 = {14, 1, 8, 5};
/// Tokens with the type of cache that does not go with the compute.
constexpr std::size_t kOtherCache = 40;
/// Layers that many sequences at once are fed through, of a large model.
constexpr std::size_t kSequenceLayers = 4;
/// How much of a thousandth of the time each section takes, of a large model; measured.
struct Shares {
  std::size_t paths;
  std::size_t far;
  std::size_t waits;
  std::size_t sequences;
};
constexpr Shares kInt8Shares = {100, 120, 25, 60};
constexpr Shares kF32Shares = {175, 200, 80, 60};
constexpr std::size_t kKernelsShare = 50;
constexpr std::size_t kMatricesShare = 90;
constexpr std::size_t kCacheShare = 10;

class SelfCheck {
 public:
  SelfCheck(const std::string& path, const SelfCheckOptions& options)
      : path_(path), options_(options) {
    if (!options_.progress) return;
    progress_ = [this](std::string_view, std::size_t done, std::size_t total) {
      // Checks of a section that load the model again tell of that from 0 on.
      shown_ = std::max(shown_,
                        before_ + share_ * std::min(done, total) / std::max<std::size_t>(1, total));
      options_.progress("self check: " + section_, shown_, 1000);
    };
  }

  Result<SelfCheckOutcome> run() {
    LoadOptions load;
    load.threads = options_.threads;
    load.expected_sha256 = options_.model_sha256;
    load.progress = options_.progress;
    load.packed_cache = options_.packed_cache;
    LLM_RETURN_IF_ERROR(load_base(load));
    LLM_TRY(const ModelFile file, open_model_file(path_));
    sizes_ = kernel_sizes(file);
    small_ = base_->weight_bytes() <= kSmallModel;
    const ModePlan int8 = plan(Compute::kInt8, KvType::kF16);
    const ModePlan f32 = plan(Compute::kF32, KvType::kF32);
    const std::function<Status()> parts[] = {
        [&] { return surroundings(); },
        [&] { return kernels(); },
        [&] { return matrices(file); },
        [&] { return run_mode(int8, small_ ? kSmall : kLargeInt8); },
        [&] { return run_mode(f32, small_ ? kSmall : kLargeF32); },
        [&] { return other_cache(plan(Compute::kInt8, KvType::kF32)); },
        [&] { return other_cache(plan(Compute::kF32, KvType::kF16)); },
        [&] { return coded_cache(plan(Compute::kInt8, KvType::kQ8)); },
        [&] { return other_cache(plan(Compute::kF32, KvType::kQ8)); }};
    for (const auto& part : parts) {
      LLM_RETURN_IF_ERROR(part());
      if (!options_.fail_fast || std::ranges::all_of(out_.results, &CheckResult::passed)) continue;
      if (&part != std::end(parts) - 1)
        out_.not_covered.emplace_back("what comes after the first part that fails");
      break;
    }
    list_what_is_missing();
    return std::move(out_);
  }

 private:
  /// With a packed cache, once more where the first load has made it, so that it is what is
  /// checked.
  Status load_base(const LoadOptions& load) {
    LLM_TRY(base_, Model::load(path_, load));
    out_.warnings = base_->warnings();
    if (load.packed_cache.empty() || !base_->packed_cache().empty()) return Ok{};
    base_.reset();
    LLM_TRY(base_, Model::load(path_, load));
    if (base_->packed_cache().empty()) {
      const std::string why = base_->warnings().empty() ? "it is gone" : base_->warnings().back();
      out_.not_covered.push_back("weights of a packed cache: " + why);
    }
    return Ok{};
  }

  /// What is done from here on, for the progress.
  void begin(std::string section, std::size_t share) {
    before_ += std::exchange(share_, share);
    section_ = std::move(section);
    if (progress_) progress_("", 0, 1);
  }

  /// What needs no pass: the definition's own functions, the tokenizer.
  Status surroundings() {
    add(check_definition(base_->config(), base_->ropes(), base_->weights().rope_divisors.span()));
    add(check_tokenizer(base_->tokenizer().spec(), tokenizer_functions(base_->tokenizer())));
    return Ok{};
  }

  void add(std::vector<CheckResult> results) {
    for (CheckResult& result : results) out_.results.push_back(std::move(result));
  }
  /// @return whether prefill gave the definition's logits
  bool add(PartOutcome part) {
    add(std::move(part.results));
    for (std::string& line : part.not_covered) out_.not_covered.push_back(std::move(line));
    return part.anchored;
  }
  /// Results of a check on sequences, or its failure by logits that are not finite.
  Status add(std::string name, Result<std::vector<CheckResult>> found) {
    if (!found.ok()) {
      auto failed = nonfinite_check(name, found.error());
      if (!failed) return std::move(found).error();
      out_.results.push_back(*std::move(failed));
      return Ok{};
    }
    for (CheckResult& result : *found) result.name = name + result.name;
    add(std::move(found).value());
    return Ok{};
  }

  ModePlan plan(Compute compute, KvType kv) const {
    return mode_plan(base_, compute, kv, progress_);
  }

  Status kernels() {
    begin("kernels", kKernelsShare);
    LLM_TRY(auto found, check_kernels(kernel_tables_here(), sizes_, progress_));
    add(std::move(found));
    LLM_TRY(auto shares, check_shares(*kernel_table(base_->isa()), sizes_.types));
    add(std::move(shares));
    return Ok{};
  }

  Status matrices(const ModelFile& file) {
    begin("matrices", kMatricesShare);
    MatrixCheckOptions options;
    options.threads = base_->threads();
    options.progress = progress_;
    if (!small_) {
      options.n_tokens = 11;
      options.single_step = 10;
      options.scalar_batch_rows = 96;
    }
    LLM_TRY(auto found, check_matrices(*base_, file, options));
    add(std::move(found));
    return Ok{};
  }

  Result<std::vector<TokenId>> text(std::size_t wanted) const {
    auto tokens = base_->tokenizer().encode(options_.text);
    const std::size_t n_text = tokens.size();
    if (n_text == 0) return Error{ErrorCode::kUsage, "text", "encodes to no tokens"};
    while (tokens.size() < wanted) tokens.push_back(tokens[tokens.size() - n_text]);
    tokens.resize(wanted);
    return tokens;
  }

  Status run_mode(const ModePlan& plan, const Lengths& lengths) {
    const Shares& shares = plan.compute == Compute::kInt8 ? kInt8Shares : kF32Shares;
    begin(plan.name + ", ways to evaluate", shares.paths);
    LLM_TRY(const auto tokens, text(lengths.usual));
    LLM_TRY(auto paths, check_paths(plan, lengths, tokens));
    const bool anchored = add(std::move(paths));
    begin(plan.name + ", long texts", shares.far);
    LLM_TRY(auto far, check_long_texts(plan));
    const bool far_anchored = add(std::move(far));
    begin(plan.name + ", random waits", shares.waits);
    LLM_TRY(auto waits, check_waits(plan));
    add(std::move(waits));
    if (!anchored || !far_anchored) {
      out_.not_covered.push_back(plan.name + ": many sequences at once: prefill is wrong");
      return Ok{};
    }
    LLM_TRY(const ModelPointer model, plan.model(plan.threads));
    begin(plan.name + ", many sequences", shares.sequences);
    return sequences(plan, model);
  }

  Status sequences(const ModePlan& plan, const ModelPointer& model) {
    SequenceCheckOptions options;
    options.progress = progress_;
    if (small_) return add(plan.title(model->isa(), ""), check_sequences(model, plan.kv, options));
    options.n_sequences = 3;
    options.most_new = 12;
    options.every_mix = false;
    const std::size_t n_layers = std::min(kSequenceLayers, model->config().n_layers);
    if (n_layers < model->config().n_layers) {
      out_.not_covered.push_back(fmt::format("{}: many sequences at once in layers {} .. {}",
                                             plan.name, n_layers, model->config().n_layers - 1));
    }
    return add(plan.title(model->isa(), ""),
               check_sequences(model->first_layers(n_layers), plan.kv, options));
  }

  Status other_cache(const ModePlan& plan) {
    begin(plan.name, kCacheShare);
    LLM_TRY(const auto tokens, text(small_ ? kOtherCache : 2));
    LLM_TRY(auto found, check_other_cache(plan, tokens));
    add(std::move(found));
    return Ok{};
  }

  /// A cache type that is chosen for what it saves: also pages that go from sequence to sequence.
  Status coded_cache(const ModePlan& plan) {
    LLM_RETURN_IF_ERROR(other_cache(plan));
    LLM_TRY(const ModelPointer model, plan.model(plan.threads));
    return small_ ? sequences(plan, model) : Ok{};
  }

  void list_what_is_missing() {
    for (const Isa isa : all_isas()) {
      if (isa_supported(isa) || kernel_table(isa) == nullptr) continue;
      out_.not_covered.push_back(fmt::format("instruction set {}: this CPU lacks {}", isa_name(isa),
                                             isa_requirement(isa)));
    }
    const std::size_t longest = longest_attended(sizes_);
    if (longest < sizes_.context)
      out_.not_covered.push_back(
          fmt::format("attention over more than {} of {} positions", longest, sizes_.context));
    if (!small_)
      out_.not_covered.push_back(
          fmt::format("all layers together on more than {} tokens, by int8, and {}, by f32",
                      kLargeInt8.usual, kLargeF32.usual));
  }

  const std::string& path_;
  const SelfCheckOptions& options_;
  ModelPointer base_;
  bool small_ = true;
  KernelSizes sizes_;
  SelfCheckOutcome out_;
  Progress progress_;
  std::size_t shown_ = 0;  ///< of 1000
  std::string section_;
  std::size_t before_ = 0;  ///< thousandths of the time
  std::size_t share_ = 0;   ///< of this section
};

}  // namespace

Result<SelfCheckOutcome> self_check(const std::string& model_path,
                                    const SelfCheckOptions& options) {
  return SelfCheck(model_path, options).run();
}

}  // namespace llm
