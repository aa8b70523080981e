#include "engine/generate/draw.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace llm {

bool ends_text(const Tokenizer& tokenizer, TokenId id, const GenerateOptions& options) {
  return tokenizer.is_end_of_generation(id) ||
         std::ranges::find(options.stop_tokens, id) != options.stop_tokens.end();
}

Result<TokenId> draw_token(const Tokenizer& tokenizer, std::span<const float> logits,
                           std::span<const TokenId> past, std::uint64_t position,
                           const GenerateOptions& options) {
  const Sampler sampler(options.sampler, options.sequence);
  if (!options.ignore_eos && options.logit_bias == nullptr)
    return sampler.sample(logits, past, position);
  std::vector<float> changed(logits.begin(), logits.end());
  if (options.logit_bias != nullptr) {
    for (const LogitBias& bias : *options.logit_bias)
      changed[static_cast<std::size_t>(bias.id)] += bias.added;
  }
  if (options.ignore_eos) {
    for (const auto& ends : {tokenizer.spec().end_of_generation, options.stop_tokens}) {
      for (const TokenId id : ends)
        changed[static_cast<std::size_t>(id)] = -std::numeric_limits<float>::infinity();
    }
  }
  return sampler.sample(changed, past, position);
}

}  // namespace llm
