#include "validate/self/cache_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <utility>

#include "validate/reference/diff/likelihood.h"

namespace llm {
namespace {

using Clock = std::chrono::steady_clock;

/// What one way of generating gave.
struct Generated {
  std::vector<TokenId> tokens;
  std::vector<float> logits;  ///< that each token was chosen from
  Clock::duration time{};
};

std::vector<TokenId> draw_prompt(const Model& model, std::size_t n_tokens, std::mt19937& random) {
  const auto& spec = model.tokenizer().spec();
  const auto n_vocab = static_cast<std::uint32_t>(model.config().n_vocab);
  std::vector<TokenId> prompt;
  if (spec.add_bos && spec.bos) prompt.push_back(*spec.bos);
  while (prompt.size() < n_tokens) prompt.push_back(static_cast<TokenId>(random() % n_vocab));
  return prompt;
}

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
  out.time = Clock::now() - start;
  return out;
}

/// The first logit, and so the first token, that differs; empty for equal bits.
std::string difference(const Generated& cached, const Generated& recomputed, std::size_t n_vocab) {
  const auto same = [](float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
  };
  const auto [a, b] = std::ranges::mismatch(cached.logits, recomputed.logits, same);
  if (a == cached.logits.end()) return {};
  const auto at = static_cast<std::size_t>(a - cached.logits.begin());
  const std::size_t step = at / n_vocab;
  return fmt::format("new token {}: {} and {}; logit of token {}: {} and {}", step,
                     cached.tokens[step], recomputed.tokens[step], at % n_vocab, *a, *b);
}

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

class CacheCheck {
 public:
  CacheCheck(const std::shared_ptr<const Model>& model, KvType kv, const CacheCheckOptions& options)
      : model_(model), kv_(kv), options_(options) {
    for (const CachePrompts& some : options.prompts) all_ += some.count;
    out_.speedup = {.title = fmt::format("Cache against recomputing, {} new tokens a prompt "
                                         "(trained for a context of {})",
                                         options.n_tokens, model->config().context),
                    .name = "cache-speedup",
                    .columns = {"prefix", "prompts", "cached s", "recomputed s", "times as fast"},
                    .rows = {}};
  }

  Result<CacheOutcome> run() {
    for (const CachePrompts& some : options_.prompts) LLM_RETURN_IF_ERROR(run_length(some));
    out_.check = {fmt::format("{} prompts x {} tokens", all_, options_.n_tokens),
                  done_ == equal_ && done_ > 0,
                  fmt::format("{} of {} prompts give equal tokens and logits, {:.1f} times as fast "
                              "with the cache{}{}",
                              equal_, all_, seconds(without_) / std::max(1e-9, seconds(with_)),
                              first_.empty() ? "" : "; ", first_)};
    return std::move(out_);
  }

 private:
  Status run_length(const CachePrompts& some) {
    ExecutorOptions how;
    how.kv = kv_;
    how.context = some.n_tokens + options_.n_tokens;
    LLM_TRY(const auto cached, open_sequence(model_, how));
    LLM_TRY(const auto recomputed, open_sequence(model_, how, {.use_cache = false}));
    Clock::duration with{};
    Clock::duration without{};
    for (std::size_t i = 0; i < some.count; ++i) {
      const auto prompt = draw_prompt(*model_, some.n_tokens, random_);
      LLM_TRY(const Generated a, generate(*cached, prompt, options_.n_tokens));
      LLM_TRY(const Generated b, generate(*recomputed, prompt, options_.n_tokens));
      with += a.time;
      without += b.time;
      const std::string words = difference(a, b, model_->config().n_vocab);
      if (words.empty()) ++equal_;
      if (!words.empty() && first_.empty())
        first_ = fmt::format("first prompt {} of {} tokens, {}", done_, prompt.size(), words);
      ++done_;
      if (options_.progress) options_.progress("cache", done_, all_);
    }
    out_.speedup.rows.push_back(
        {Figure::fixed(static_cast<double>(some.n_tokens), 0),
         Figure::fixed(static_cast<double>(some.count), 0), Figure::number(seconds(with), 3),
         Figure::number(seconds(without), 3),
         Figure::number(seconds(without) / std::max(1e-9, seconds(with)), 3)});
    with_ += with;
    without_ += without;
    return Ok{};
  }

  const std::shared_ptr<const Model>& model_;
  KvType kv_;
  const CacheCheckOptions& options_;
  std::mt19937 random_{1};
  Clock::duration with_{};
  Clock::duration without_{};
  std::size_t all_ = 0;
  std::size_t done_ = 0;
  std::size_t equal_ = 0;
  std::string first_;  ///< what differs in the first prompt that does
  CacheOutcome out_;
};

}  // namespace

Result<CacheOutcome> check_cached_generation(const std::shared_ptr<const Model>& model, KvType kv,
                                             const CacheCheckOptions& options) {
  return CacheCheck(model, kv, options).run();
}

}  // namespace llm
