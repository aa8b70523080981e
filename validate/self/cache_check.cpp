#include "validate/self/cache_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "validate/diff/likelihood.h"

namespace llm {
namespace {

using Clock = std::chrono::steady_clock;

/// What one way of generating gave.
struct Generated {
  std::vector<TokenId> tokens;
  std::vector<float> logits;  ///< that each token was chosen from
  Clock::duration time{};
};

std::vector<std::vector<TokenId>> draw_prompts(const Model& model,
                                               const CacheCheckOptions& options) {
  const auto& spec = model.tokenizer().spec();
  const auto n_vocab = static_cast<std::uint32_t>(model.config().n_vocab);
  std::mt19937 random(1);
  std::vector<std::vector<TokenId>> prompts(options.n_prompts);
  for (auto& prompt : prompts) {
    if (spec.add_bos && spec.bos) prompt.push_back(*spec.bos);
    while (prompt.size() < options.n_prompt_tokens)
      prompt.push_back(static_cast<TokenId>(random() % n_vocab));
  }
  return prompts;
}

Status generate(Session& session, std::span<const TokenId> prompt, std::size_t n_tokens,
                Generated& out) {
  const auto start = Clock::now();
  session.truncate(0);
  std::vector<TokenId> fed(prompt.begin(), prompt.end());
  for (std::size_t i = 0; i < n_tokens; ++i) {
    LLM_TRY(const auto logits, session.evaluate(fed, LogitRows::kLast));
    out.logits.insert(out.logits.end(), logits.begin(), logits.end());
    out.tokens.push_back(static_cast<TokenId>(top_token(logits)));
    fed = {out.tokens.back()};
  }
  out.time += Clock::now() - start;
  return Ok{};
}

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

Result<CheckResult> check_cached_generation(const std::shared_ptr<const Model>& model, KvType kv,
                                            const CacheCheckOptions& options) {
  ExecutorOptions how;
  how.kv = kv;
  how.context = options.n_prompt_tokens + options.n_tokens;
  LLM_TRY(const auto cached, open_sequence(model, how));
  LLM_TRY(const auto recomputed, open_sequence(model, how, {.use_cache = false}));
  Clock::duration with{};
  Clock::duration without{};
  std::size_t equal = 0;
  const auto prompts = draw_prompts(*model, options);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    Generated a;
    Generated b;
    LLM_RETURN_IF_ERROR(generate(*cached, prompts[i], options.n_tokens, a));
    LLM_RETURN_IF_ERROR(generate(*recomputed, prompts[i], options.n_tokens, b));
    with += a.time;
    without += b.time;
    const bool same_logits =
        a.logits.size() == b.logits.size() &&
        std::memcmp(a.logits.data(), b.logits.data(), a.logits.size() * sizeof(float)) == 0;
    equal += a.tokens == b.tokens && same_logits ? 1 : 0;
    if (options.progress) options.progress("cache", i + 1, prompts.size());
  }
  return CheckResult{
      fmt::format("{} prompts x {} tokens", prompts.size(), options.n_tokens),
      equal == prompts.size(),
      fmt::format("{} of {} prompts give equal tokens and logits; {:.2f} s with the cache, {:.2f} "
                  "s recomputed, {:.1f} times as fast",
                  equal, prompts.size(), seconds(with), seconds(without),
                  seconds(without) / std::max(1e-9, seconds(with)))};
}

}  // namespace llm
