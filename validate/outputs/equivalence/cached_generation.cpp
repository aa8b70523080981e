#include "validate/outputs/equivalence/cached_generation.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>

#include "validate/reference/diff/likelihood.h"
#include "validate/selftest/text_path.h"

namespace llm {
namespace {

using Clock = std::chrono::steady_clock;

/// What one way of generating gave.
struct Generated {
  std::vector<TokenId> tokens;
  std::vector<float> logits;  ///< that each token was chosen from
  double seconds = 0;
};

Result<Generated> generate(Session& session, std::span<const TokenId> prompt,
                           std::size_t n_tokens) {
  Generated out;
  const auto start = Clock::now();
  session.truncate(0);
  std::vector<TokenId> fed(prompt.begin(), prompt.end());
  for (std::size_t i = 0; i < n_tokens; ++i) {
    LLM_TRY(const auto logits, session.evaluate(fed, LogitRows::kLast));
    out.logits.insert(out.logits.end(), logits.begin(), logits.end());
    out.tokens.push_back(static_cast<TokenId>(top_token(logits)));
    fed = {out.tokens.back()};
  }
  out.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return out;
}

/// The first logit, and so the first token, that differs; empty for equal bits.
std::string difference(const Generated& cached, const Generated& recomputed, std::size_t n_vocab) {
  const std::size_t at = first_unequal(cached.logits, recomputed.logits);
  if (at == cached.logits.size()) return {};
  const std::size_t step = at / n_vocab;
  return fmt::format("new token {}: {} and {}; logit of token {}: {} and {}", step,
                     cached.tokens[step], recomputed.tokens[step], at % n_vocab, cached.logits[at],
                     recomputed.logits[at]);
}

}  // namespace

Result<CacheOutcome> check_cached_generation(const std::shared_ptr<const Model>& model, KvType kv,
                                             const CacheCheckOptions& options) {
  CacheOutcome out;
  out.speedup = {
      .title = fmt::format(
          "With and without the cache, {} new tokens per prompt (trained for a context of {})",
          options.n_tokens, model->config().context),
      .name = "cache-speedup",
      .columns = {"prefix", "prompts", "cached s", "recomputed s", "times as fast"},
      .rows = {}};
  const auto& spec = model->tokenizer().spec();
  const std::size_t n_vocab = model->config().n_vocab;
  std::size_t all = 0;
  for (const CachePrompts& some : options.prompts) all += some.count;
  std::mt19937 random(1);
  double all_with = 0;
  double all_without = 0;
  std::size_t done = 0;
  std::size_t equal = 0;
  std::string first;  // what differs in the first prompt that does
  for (const CachePrompts& some : options.prompts) {
    const ExecutorOptions how{.context = some.n_tokens + options.n_tokens, .kv = kv};
    LLM_TRY(const auto cached, open_sequence(model, how));
    LLM_TRY(const auto recomputed, open_sequence(model, how, {.use_cache = false}));
    double with = 0;
    double without = 0;
    for (std::size_t i = 0; i < some.count; ++i) {
      std::vector<TokenId> prompt;
      if (spec.add_bos && spec.bos) prompt.push_back(*spec.bos);
      draw_tokens(prompt, some.n_tokens, n_vocab, random);
      LLM_TRY(const Generated a, generate(*cached, prompt, options.n_tokens));
      LLM_TRY(const Generated b, generate(*recomputed, prompt, options.n_tokens));
      with += a.seconds;
      without += b.seconds;
      const std::string words = difference(a, b, n_vocab);
      if (words.empty()) ++equal;
      if (!words.empty() && first.empty())
        first = fmt::format("; first prompt {} of {} tokens, {}", done, prompt.size(), words);
      ++done;
      if (options.progress) options.progress("cache", done, all);
    }
    out.speedup.rows.push_back({Figure::count(some.n_tokens), Figure::count(some.count),
                                Figure::number(with, 3), Figure::number(without, 3),
                                Figure::number(without / std::max(1e-9, with), 3)});
    all_with += with;
    all_without += without;
  }
  out.check = {fmt::format("{} prompts x {} tokens", all, options.n_tokens),
               done == equal && done > 0,
               fmt::format("{} of {} prompts give equal tokens and logits, {:.1f} times as fast "
                           "with the cache{}",
                           equal, all, all_without / std::max(1e-9, all_with), first)};
  return out;
}

}  // namespace llm
