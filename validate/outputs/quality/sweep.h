#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "tokenizer/vocab_spec.h"
#include "validate/report/report.h"

namespace llm {

/// exp(mean nll); 1 for no tokens.
double perplexity(std::span<const double> nll);

/// Mean over all windows of 20 neighbouring tokens (stride 1) of 1 - unique / 20. A shorter text is
/// one window of its own length; an empty one gives 0.
double repetition(std::span<const TokenId> tokens);

/// Unique n-grams / n-grams. 1 for a text without any. @pre n >= 1
double distinct(std::span<const TokenId> tokens, std::size_t n);

/// Share of the runs that equal the first, the first included. 1 for no runs.
double consistency(std::span<const std::vector<TokenId>> runs);

/// How tokens are chosen.
enum class Choice {
  kTemperature,  ///< drawn at QualityConfig::temperature
  kGreedy,
  kUsual,    ///< as llmrun does by default: top-k, top-p, min-p
  kShifted,  ///< the same with kRepeatPenalty, in a context that gets full half-way
};

/// One way to generate. By the numeric contract those of equal choice give equal tokens.
struct Implementation {
  std::string_view name;
  Choice choice;
  bool use_cache;
  bool feed_one;  ///< the prompt goes in one token a call
};

/// No-cache sampling, cached sampling, cached feed-one, greedy no-cache, greedy cached, llmrun's
/// defaults, context shift.
std::span<const Implementation> quality_implementations();

struct QualityConfig {
  std::size_t prompts = 20;        ///< the first of the text's documents, each cut to
  std::size_t prompt_tokens = 16;  ///< tokens after BOS, if any
  std::size_t new_tokens = 50;     ///< an end of text is never drawn
  std::size_t runs = 3;
  std::size_t openings = 50;        ///< documents scored in every way, the first of the text, each
  std::size_t opening_tokens = 32;  ///< cut to so many tokens
  float temperature = 0.8F;         ///< of those that sample
  std::uint64_t seed = 1;
};

/// The four signals of one implementation, with what they come from.
struct QualityResult {
  std::string name;
  std::vector<double> nll;                   ///< of the openings' tokens, in order
  std::vector<std::vector<TokenId>> tokens;  ///< generated, per prompt, first run
  double perplexity = 0;
  double repetition = 0;  ///< mean over prompts, as the next three
  double distinct2 = 0;
  double distinct3 = 0;
  double consistency = 0;  ///< the least of all prompts
};

/// Runs one implementation on `text`, documents parted by two empty lines.
/// Errors: kUsage when the text has too few documents or tokens; the engine's.
Result<QualityResult> measure_quality(const std::shared_ptr<const Model>& model,
                                      const Implementation& implementation, std::string_view text,
                                      const QualityConfig& config, const Progress& progress = {});

/// That results which must be equal are: tokens, of all with the same choice; nll of all, bit for
/// bit. And that each is consistent.
std::vector<CheckResult> check_equality(std::span<const QualityResult> results);

/// SHA-256, hex, over all generated tokens as little-endian i32, prompt after prompt.
std::string tokens_hash(const QualityResult& result);

}  // namespace llm
