#include "validate/text/stages/stage_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/shown_text.h"
#include "engine/generate/generate.h"
#include "validate/reference/diff/likelihood.h"
#include "validate/reference/diff/metrics.h"

namespace llm {
namespace {

constexpr int kOutside = ProbeSink::kGlobal;

std::string shown(const Model& model, TokenId id) {
  return fmt::format("{} ({})", id, llm::quoted(model.tokenizer().piece_text(id, true)));
}

constexpr double kUnits = 10;
/// Of a model whose weights take no codes: what rounding to f32 and to f16 may do.
constexpr double kLeastLimit = 1e-6;

Result<std::vector<float>> logits_of(const std::shared_ptr<const Model>& model, ComputeMode mode,
                                     std::span<const std::int32_t> tokens) {
  LLM_TRY(const auto in_mode, model->with_compute(mode.compute));
  LLM_TRY(const auto session, open_sequence(in_mode, {.context = tokens.size(), .kv = mode.kv}));
  const std::vector<TokenId> ids(tokens.begin(), tokens.end());
  LLM_TRY(const auto logits, session->evaluate(ids, LogitRows::kAll));
  return std::vector<float>(logits.begin(), logits.end());
}

}  // namespace

Result<std::optional<GreedyText>> greedy_text(const Dump& reference) {
  if (!reference.has(kOutside, "logits")) return std::optional<GreedyText>();
  LLM_TRY(const TapMatrix logits, reference.tap(kOutside, "logits"));
  const std::span<const std::int32_t> tokens = reference.tokens();
  const auto choice = [&](std::size_t row) {
    return static_cast<TokenId>(top_token(logits.row(row)));
  };
  std::size_t begin = tokens.size();
  while (begin > 1 && choice(begin - 2) == tokens[begin - 1]) --begin;
  const auto middle = tokens.begin() + static_cast<std::ptrdiff_t>(begin);
  GreedyText out{{tokens.begin(), middle}, {middle, tokens.end()}};
  out.tokens.push_back(choice(tokens.size() - 1));
  return std::optional(std::move(out));
}

Result<std::optional<StageText>> check_text(const std::shared_ptr<const Model>& model, KvType kv,
                                            const Dump& reference, double noise) {
  LLM_TRY(const auto greedy, greedy_text(reference));
  if (!greedy) return std::optional<StageText>();
  const std::vector<TokenId>& expected = greedy->tokens;
  LLM_TRY(const auto session,
          open_sequence(model, {.context = greedy->prompt.size() + expected.size(), .kv = kv}));
  GenerateOptions options;
  options.sampler.temperature = 0;
  options.max_tokens = expected.size();
  LLM_TRY(const GenerateResult result, generate(*session, greedy->prompt, options));
  const std::vector<TokenId>& chosen = result.ids;
  const std::size_t agreed =
      static_cast<std::size_t>(std::ranges::mismatch(chosen, expected).in1 - chosen.begin());
  StageText out{.passed = agreed == expected.size(), .agreed = agreed, .words = {}};
  out.words = fmt::format("{} of {} tokens after {} of the reference's", agreed, expected.size(),
                          greedy->prompt.size());
  if (out.passed) return std::optional(std::move(out));
  const TokenId need = expected[agreed];
  if (agreed == chosen.size()) {
    const auto& ends = model->tokenizer().spec().end_of_generation;
    out.passed =
        result.stop_reason == StopReason::kEos && std::ranges::find(ends, need) != ends.end();
    out.words += out.passed ? ", which end the text"
                            : fmt::format(", then the text ended; the reference has {}",
                                          shown(*model, need));
    return std::optional(std::move(out));
  }
  LLM_TRY(const TapMatrix logits, reference.tap(kOutside, "logits"));
  const auto row = logits.row(greedy->prompt.size() + agreed - 1);
  const double gap = static_cast<double>(row[static_cast<std::size_t>(need)]) -
                     static_cast<double>(row[static_cast<std::size_t>(chosen[agreed])]);
  out.passed = gap <= 2 * noise;
  out.words +=
      fmt::format("; then {}, the reference {}, {} {:.4g} apart", shown(*model, chosen[agreed]),
                  shown(*model, need), out.passed ? "a tie," : "their logits", gap);
  return std::optional(std::move(out));
}

Result<std::optional<StageLogits>> check_logits(const std::shared_ptr<const Model>& model,
                                                ComputeMode mode, const Dump& reference) {
  if (!reference.has(ProbeSink::kGlobal, "logits")) return std::optional<StageLogits>();
  LLM_TRY(const TapMatrix expected, reference.tap(ProbeSink::kGlobal, "logits"));
  LLM_TRY(const auto rounded, logits_of(model, mode, reference.tokens()));
  LLM_TRY(const auto exact, logits_of(model, {Compute::kF32, KvType::kF32}, reference.tokens()));
  StageLogits out;
  if (rounded.size() != expected.values.size()) return std::optional<StageLogits>();
  out.error = nmse(rounded, expected.values);
  out.limit = std::max(kLeastLimit, kUnits * nmse(rounded, exact));
  out.noise = max_abs_difference(rounded, exact);
  return std::optional(out);
}

}  // namespace llm
