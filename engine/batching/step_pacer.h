#pragma once

#include <cstddef>

namespace llm {

/// How many tokens of long prompts a step takes beside decoding requests, so that these wait for
/// their next token not much longer than without: from measured times, which change what is
/// evaluated when, and no result.
class StepPacer {
 public:
  /// A step takes so many times the time of one without prompts at most,
  static constexpr double kSlower = 2;
  /// or these seconds, which a reader does not notice.
  static constexpr double kUnnoticed = 0.06;

  /// A step was evaluated.
  /// @param n_prompt  tokens of prompts in it  @param n_others  of decoding requests
  void note(std::size_t n_prompt, std::size_t n_others, double seconds);
  /// Scheduler::next()'s `most_long` for the next step.
  std::size_t most_long() const;

 private:
  double decode_seconds_ = 0;  ///< of a step without prompts; 0: there was none
  double token_seconds_ = 0;   ///< what a token of a prompt adds; 0: not known
};

}  // namespace llm
