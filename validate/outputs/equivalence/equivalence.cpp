#include "validate/outputs/equivalence/equivalence.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/cpu_features.h"
#include "base/shown_text.h"
#include "quant/kernels/kernel_table.h"
#include "validate/outputs/equivalence/cached_generation.h"
#include "validate/outputs/equivalence/every_proposer.h"
#include "validate/selftest/mode_check.h"

namespace llm {
namespace {

constexpr std::uint64_t kSmallModel = std::uint64_t{64} << 20;
constexpr Lengths kSmall = {.usual = 300, .scalar = 40, .split = 40, .recomputed = 40};
constexpr Lengths kLarge = {.usual = 40, .scalar = 2, .split = 14, .recomputed = 8};

constexpr CachePrompts kSmallPrompts[] = {{16, 40}, {64, 6}, {256, 2}, {512, 1}, {1024, 1}};
constexpr CachePrompts kLargePrompts[] = {{16, 2}};

class EquivalenceCheck {
 public:
  EquivalenceCheck(const std::shared_ptr<const Model>& model, const FrozenTexts& frozen,
                   const Progress& progress)
      : model_(model),
        frozen_(frozen),
        progress_(progress),
        small_(model->weight_bytes() <= kSmallModel) {}

  Result<EquivalenceOutcome> run() {
    if (frozen_.contract_version != contract::kContractVersion) {
      return Error{ErrorCode::kIntegrity, "contract_version",
                   fmt::format("found {}, need {}, this engine's", frozen_.contract_version,
                               contract::kContractVersion)};
    }
    LLM_TRY(const auto texts, run_cases(model_, progress_));
    compare(texts);
    LLM_RETURN_IF_ERROR(proposals());
    LLM_RETURN_IF_ERROR(paths(texts));
    LLM_RETURN_IF_ERROR(cache());
    list_what_is_missing();
    return std::move(out_);
  }

 private:
  void add(std::string_view part, CheckResult result) {
    result.name = fmt::format("equivalence: {}{}", part, result.name);
    out_.checks.push_back(std::move(result));
  }

  std::string difference(const CaseText& text, const CaseText& frozen) const {
    return text_difference(text, frozen, [&](TokenId id) {
      const bool known = id >= 0 && static_cast<std::size_t>(id) < model_->config().n_vocab;
      return known
                 ? fmt::format("{} ({})", id, llm::quoted(model_->tokenizer().piece_text(id, true)))
                 : fmt::format("{} (no token of this vocabulary)", id);
    });
  }

  void compare(const std::vector<CaseText>& texts) {
    for (const CaseText& text : texts) {
      const auto found = std::ranges::find(frozen_.cases, text.name, &CaseText::name);
      if (found == frozen_.cases.end()) {
        add("frozen: ", {text.name, false, "not in the file; --update-equivalence adds it"});
        continue;
      }
      const std::string words = difference(text, *found);
      add("frozen: ", {text.name, words.empty(),
                       words.empty() ? fmt::format("{} tokens, {} rows of logits, SHA-256 {}...",
                                                   text.tokens.size(), text.rows.size(),
                                                   text.logits_sha256.substr(0, 12))
                                     : words});
    }
    for (const CaseText& old : frozen_.cases) {
      if (std::ranges::find(texts, old.name, &CaseText::name) == texts.end())
        add("frozen: ", {old.name, false, "in the file, but not a case of this version"});
    }
  }

  /// The frozen texts again, with every kind of proposals.
  Status proposals() {
    std::vector<CheckResult> results;  // by proposer
    std::size_t n_texts = 0;
    for (const EquivalenceCase& which : equivalence_cases()) {
      const auto frozen = std::ranges::find(frozen_.cases, which.name, &CaseText::name);
      if (frozen == frozen_.cases.end()) continue;
      ++n_texts;
      LLM_TRY(const auto model, model_->with_compute(which.compute));
      std::size_t next = 0;
      LLM_RETURN_IF_ERROR(with_every_proposer(
          model, which.kv, which.context,
          [&](Speculation* speculation, std::string_view name) -> Status {
            if (speculation == nullptr) return Ok{};  // compare() has seen that
            if (next == results.size()) results.push_back({std::string(name), true, ""});
            CheckResult& result = results[next++];
            LLM_TRY(const CaseText text, run_case(model, which, speculation));
            const std::string words = difference(text, *frozen);
            if (!words.empty() && result.passed)
              result = {result.name, false, fmt::format("{}: {}", which.name, words)};
            return Ok{};
          }));
      if (progress_) progress_("proposals", n_texts, frozen_.cases.size());
    }
    for (CheckResult& result : results) {
      if (result.passed) result.detail = fmt::format("{} outputs equal the stored ones", n_texts);
      add("proposals: ", std::move(result));
    }
    return Ok{};
  }

  /// The texts of the cases, joined and repeated, in every way the contract calls equal.
  Status paths(const std::vector<CaseText>& texts) {
    const Lengths& lengths = small_ ? kSmall : kLarge;
    std::vector<TokenId> tokens;
    while (tokens.size() < lengths.usual) {
      for (const CaseText& text : texts) {
        tokens.insert(tokens.end(), text.prompt.begin(), text.prompt.end());
        tokens.insert(tokens.end(), text.tokens.begin(), text.tokens.end());
      }
    }
    tokens.resize(lengths.usual);
    for (const Compute compute : {Compute::kInt8, Compute::kF32}) {
      const ModePlan plan = mode_plan(model_, compute, usual_kv(compute), progress_);
      LLM_TRY(PartOutcome part, check_paths(plan, lengths, tokens));
      for (CheckResult& result : part.results) add("invariance: ", std::move(result));
      for (std::string& line : part.not_covered) out_.not_covered.push_back(std::move(line));
    }
    return Ok{};
  }

  Status cache() {
    CacheCheckOptions options;
    const std::span<const CachePrompts> prompts =
        small_ ? std::span<const CachePrompts>(kSmallPrompts) : kLargePrompts;
    options.prompts.assign(prompts.begin(), prompts.end());
    options.progress = progress_;
    LLM_TRY(CacheOutcome found, check_cached_generation(model_, KvType::kF16, options));
    add("cached and recomputed: ", std::move(found.check));
    out_.speedup = std::move(found.speedup);
    return Ok{};
  }

  void list_what_is_missing() {
    for (const Isa isa : all_isas()) {
      if (isa_supported(isa) || kernel_table(isa) == nullptr) continue;
      out_.not_covered.push_back(fmt::format("instruction set {}: skipped, this CPU lacks {}",
                                             isa_name(isa), isa_requirement(isa)));
    }
    if (!small_)
      out_.not_covered.emplace_back(
          "recomputed prefixes of more than 16 tokens: the model is above 64 MiB");
  }

  const std::shared_ptr<const Model>& model_;
  const FrozenTexts& frozen_;
  const Progress& progress_;
  bool small_;
  EquivalenceOutcome out_;
};

}  // namespace

Result<std::vector<CaseText>> run_cases(const std::shared_ptr<const Model>& model,
                                        const Progress& progress) {
  const auto cases = equivalence_cases();
  std::vector<CaseText> texts;
  for (const EquivalenceCase& which : cases) {
    LLM_TRY(const auto computed, model->with_compute(which.compute));
    LLM_TRY(CaseText text, run_case(computed, which));
    texts.push_back(std::move(text));
    if (progress) progress("texts", texts.size(), cases.size());
  }
  return texts;
}

Result<EquivalenceOutcome> check_equivalence(const std::shared_ptr<const Model>& model,
                                             const FrozenTexts& frozen, const Progress& progress) {
  return EquivalenceCheck(model, frozen, progress).run();
}

}  // namespace llm
