#include "engine/generate/draw.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace llm {

bool ends_text(const Tokenizer& tokenizer, TokenId id, const GenerateOptions& options) {
  return tokenizer.is_end_of_generation(id) ||
         std::ranges::find(options.stop_tokens, id) != options.stop_tokens.end();
}

void exclude(std::span<float> row, std::span<const std::uint32_t> mask) {
  for (std::size_t id = 0; id < row.size(); ++id) {
    if (!allows(mask, static_cast<TokenId>(id)) && std::isfinite(row[id]))
      row[id] = -std::numeric_limits<float>::infinity();
  }
}

Result<TokenId> draw_token(const Tokenizer& tokenizer, std::span<const float> logits,
                           std::span<const TokenId> past, std::uint64_t position,
                           const GenerateOptions& options, std::span<const std::uint32_t> mask) {
  constexpr std::uint64_t kAmongAllowed = std::uint64_t{1} << 63;
  const Sampler sampler(options.sampler, options.sequence ^ (mask.empty() ? 0 : kAmongAllowed));
  if (!options.ignore_eos && options.logit_bias == nullptr && mask.empty())
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
  if (!mask.empty()) {
    exclude(changed, mask);
    constexpr float kNone = -std::numeric_limits<float>::infinity();
    if (std::ranges::all_of(changed, [](float logit) { return logit == kNone; })) {
      return Error{ErrorCode::kNonFinite, "grammar",
                   fmt::format("position {}: found no token that it allows with a finite logit, "
                               "need one; no token drawn",
                               position)};
    }
  }
  return sampler.sample(changed, past, position);
}

}  // namespace llm
