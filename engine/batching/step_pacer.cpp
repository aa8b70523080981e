#include "engine/batching/step_pacer.h"

#include <algorithm>

namespace llm {
namespace {

constexpr double kLeast = 8;   // tokens: of fewer a step's time hardly depends
constexpr double kFirst = 32;  // where nothing is known
constexpr double kMost = 1 << 20;

/// Half of what is known is from the last step: with more requests, and deep in a prompt, steps
/// take longer.
void learn(double& known, double seconds) { known = known > 0 ? (known + seconds) / 2 : seconds; }

}  // namespace

void StepPacer::note(std::size_t n_prompt, std::size_t n_others, double seconds) {
  if (n_prompt == 0) return learn(decode_seconds_, seconds);
  const double others = n_others > 0 ? std::min(decode_seconds_, seconds / 2) : 0;
  learn(token_seconds_, (seconds - others) / static_cast<double>(n_prompt));
}

std::size_t StepPacer::most_long() const {
  if (!(token_seconds_ > 0)) return static_cast<std::size_t>(kFirst);
  const double step = std::max(kSlower * decode_seconds_, kUnnoticed);
  return static_cast<std::size_t>(
      std::clamp((step - decode_seconds_) / token_seconds_, kLeast, kMost));
}

}  // namespace llm
