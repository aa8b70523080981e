#include "validate/outputs/quality/sweep.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "base/sha256.h"
#include "engine/generation/generate.h"
#include "validate/outputs/quality/text_windows.h"
#include "validate/reference/diff/likelihood.h"

namespace llm {
namespace {

constexpr std::size_t kRepetitionWindow = 20;

double repeated_share(std::span<const TokenId> tokens) {
  const std::set<TokenId> unique(tokens.begin(), tokens.end());
  return 1 - static_cast<double>(unique.size()) / static_cast<double>(tokens.size());
}

constexpr Implementation kImplementations[] = {
    {"no-cache-sampling", Choice::kTemperature, false, false},
    {"cached-sampling", Choice::kTemperature, true, false},
    {"feed-one-sampling", Choice::kTemperature, true, true},
    {"greedy-no-cache", Choice::kGreedy, false, false},
    {"greedy-cached", Choice::kGreedy, true, false},
    {"usual-sampling", Choice::kUsual, true, false},
    {"shifted-sampling", Choice::kShifted, true, false},
};
constexpr float kRepeatPenalty = 1.1F;

Choice choice_of(const std::string& name) {
  const auto* found = std::ranges::find(kImplementations, name, &Implementation::name);
  return found == std::end(kImplementations) ? Choice::kTemperature : found->choice;
}

GenerateOptions generation_of(Choice choice, const QualityConfig& config) {
  GenerateOptions options;
  if (choice == Choice::kTemperature) options.sampler.temperature = config.temperature;
  if (choice == Choice::kGreedy) options.sampler.temperature = 0;
  if (choice == Choice::kUsual || choice == Choice::kShifted) options.sampler = kUsualSampling;
  if (choice == Choice::kShifted) options.sampler.repeat_penalty = kRepeatPenalty;
  options.context_shift = choice == Choice::kShifted;
  options.sampler.seed = config.seed;
  options.max_tokens = config.new_tokens;
  options.ignore_eos = true;
  return options;
}

Result<std::vector<std::vector<TokenId>>> make_prompts(const Tokenizer& tokenizer,
                                                       std::string_view text,
                                                       const QualityConfig& config) {
  std::vector<std::vector<TokenId>> prompts;
  for (const std::string_view document : split_documents(text)) {
    if (prompts.size() == config.prompts) break;
    auto tokens = tokenizer.encode(document, {.add_eos = false});
    const std::size_t wanted = config.prompt_tokens + (text_start(tokenizer.spec()) ? 1 : 0);
    if (tokens.size() < wanted) continue;
    tokens.resize(wanted);
    prompts.push_back(std::move(tokens));
  }
  if (prompts.size() == config.prompts) return prompts;
  return Error{ErrorCode::kUsage, "text",
               fmt::format("found {} documents of {} tokens or more, need {}", prompts.size(),
                           config.prompt_tokens, config.prompts)};
}

/// The beginnings of documents, as many as there are up to the wanted number.
Result<std::vector<TextWindow>> make_openings(const Tokenizer& tokenizer, std::string_view text,
                                              const QualityConfig& config) {
  std::vector<TextWindow> openings;
  for (const std::string_view document : split_documents(text)) {
    if (openings.size() == config.openings) break;
    LLM_TRY(auto windows, text_windows(tokenizer, document,
                                       {.window = config.opening_tokens, .documents = true}));
    openings.push_back(std::move(windows.front()));
  }
  return openings;
}

}  // namespace

double perplexity(std::span<const double> nll) { return std::exp(estimate_mean(nll).mean); }

double repetition(std::span<const TokenId> tokens) {
  if (tokens.empty()) return 0;
  const std::size_t width = std::min(kRepetitionWindow, tokens.size());
  const std::size_t n_windows = tokens.size() - width + 1;
  double sum = 0;
  for (std::size_t i = 0; i < n_windows; ++i) sum += repeated_share(tokens.subspan(i, width));
  return sum / static_cast<double>(n_windows);
}

double distinct(std::span<const TokenId> tokens, std::size_t n) {
  if (tokens.size() < n) return 1;
  std::set<std::vector<TokenId>> unique;
  const std::size_t total = tokens.size() - n + 1;
  for (std::size_t i = 0; i < total; ++i) {
    const auto gram = tokens.subspan(i, n);
    unique.emplace(gram.begin(), gram.end());
  }
  return static_cast<double>(unique.size()) / static_cast<double>(total);
}

double consistency(std::span<const std::vector<TokenId>> runs) {
  if (runs.empty()) return 1;
  const auto equal = std::ranges::count(runs, runs.front());
  return static_cast<double>(equal) / static_cast<double>(runs.size());
}

std::span<const Implementation> quality_implementations() { return kImplementations; }

Result<QualityResult> measure_quality(const std::shared_ptr<const Model>& model,
                                      const Implementation& implementation, std::string_view text,
                                      const QualityConfig& config, const Progress& progress) {
  LLM_TRY(const auto prompts, make_prompts(model->tokenizer(), text, config));
  LLM_TRY(const auto openings, make_openings(model->tokenizer(), text, config));
  ExecutorOptions options;
  options.kv = usual_kv(model->compute());
  options.context = std::max(config.opening_tokens, 1 + config.prompt_tokens + config.new_tokens);
  if (implementation.feed_one) options.batch = 1;
  LLM_TRY(const auto executor, Executor::create(model, options));

  QualityResult result;
  result.name = std::string(implementation.name);
  const std::size_t step = implementation.use_cache && !implementation.feed_one ? 64 : 1;
  LLM_TRY(auto reader, Executor::open(executor, {.use_cache = implementation.use_cache}));
  LLM_RETURN_IF_ERROR(visit_rows(
      *reader, openings,
      [&](std::span<const float> logits, TokenId target) {
        result.nll.push_back(negative_log_likelihood(logits, target));
      },
      progress, step));
  result.perplexity = perplexity(result.nll);
  reader.reset();

  GenerateOptions generation = generation_of(implementation.choice, config);
  SequenceOptions sequence{.use_cache = implementation.use_cache};
  if (generation.context_shift) sequence.context = 1 + config.prompt_tokens + config.new_tokens / 2;
  LLM_TRY(const auto writer, Executor::open(executor, sequence));
  result.consistency = 1;
  const auto n_prompts = static_cast<double>(prompts.size());
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    generation.sequence = p;
    std::vector<std::vector<TokenId>> runs;
    for (std::size_t r = 0; r < config.runs; ++r) {
      writer->truncate(0);
      LLM_TRY(GenerateResult generated, generate(*writer, prompts[p], generation));
      runs.push_back(std::move(generated.ids));
    }
    result.consistency = std::min(result.consistency, consistency(runs));
    result.repetition += repetition(runs[0]) / n_prompts;
    result.distinct2 += distinct(runs[0], 2) / n_prompts;
    result.distinct3 += distinct(runs[0], 3) / n_prompts;
    result.tokens.push_back(std::move(runs[0]));
    if (progress) progress(implementation.name, p + 1, prompts.size());
  }
  return result;
}

std::vector<CheckResult> check_equality(std::span<const QualityResult> results) {
  std::vector<CheckResult> checks;
  for (const QualityResult& result : results) {
    checks.push_back({result.name + ": every run equals the first", result.consistency == 1,
                      fmt::format("consistency {}", result.consistency)});
    const auto first = std::ranges::find_if(results, [&](const QualityResult& other) {
      return choice_of(other.name) == choice_of(result.name);
    });
    if (&*first != &result) {
      const auto [a, b] = std::ranges::mismatch(result.tokens, first->tokens);
      const bool same = result.tokens == first->tokens;
      checks.push_back({fmt::format("{}: tokens equal {}", result.name, first->name), same,
                        same ? fmt::format("{} prompts", result.tokens.size())
                             : fmt::format("prompt {} differs", a - result.tokens.begin())});
    }
    if (&result != results.data()) {
      const auto [a, b] = std::ranges::mismatch(result.nll, results[0].nll);
      const bool same = result.nll == results[0].nll;
      checks.push_back({fmt::format("{}: likelihoods equal {}", result.name, results[0].name), same,
                        same ? fmt::format("{} tokens", result.nll.size())
                             : fmt::format("token {} differs", a - result.nll.begin())});
    }
  }
  return checks;
}

std::string tokens_hash(const QualityResult& result) {
  std::string bytes;
  for (const auto& tokens : result.tokens) {
    for (const TokenId token : tokens) {
      const auto value = static_cast<std::uint32_t>(token);
      for (int shift = 0; shift < 32; shift += 8)
        bytes.push_back(static_cast<char>((value >> shift) & 0xFF));
    }
  }
  return sha256_hex(std::as_bytes(std::span(bytes)));
}

}  // namespace llm
