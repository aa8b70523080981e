#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tokenizer/vocab_spec.h"
#include "validate/report/report.h"
#include "validate/text/verify/topk_gate.h"

namespace llm {

/// What a verdict is given by.
enum class VerifyGate {
  kStrict,     ///< the reference was made from this very file
  kQuantized,  ///< from another quantization of the same model, whose choices may differ a little
};

/// How one prompt went.
struct PromptOutcome {
  std::string id;
  Lockstep lockstep;
  Forced forced;
};

/// Everything that a run over a reference found, not yet judged.
struct VerifyOutcome {
  VerifyGate gate = VerifyGate::kStrict;
  std::size_t top_k = 0;
  std::size_t texts = 0;                   ///< prompts given as text
  std::vector<std::string> text_problems;  ///< those that are encoded otherwise
  std::vector<PromptOutcome> prompts;
  LogitNoise noise;        ///< int8 against f32 on the same tokens, every logit
  LogitNoise f32_error;    ///< f32 against the reference, at its most likely tokens
  LogitNoise int8_error;   ///< int8 against the reference, likewise
  double f32_limit = 0;    ///< on the NMSE of f32_error, for kStrict
  double noise_limit = 0;  ///< on the NMSE of noise

  std::size_t steps() const;    ///< of all prompts
  std::size_t equal() const;    ///< forced steps with the reference's choice
  std::size_t misses() const;   ///< forced steps with another that noise does not explain
  std::size_t outside() const;  ///< forced steps with another that is not among the top
  /// Steps that kQuantized lets be outside(): 1 %, rounded up.
  std::size_t outside_allowed() const;
};

/// The verdicts, in this order: prompts are encoded to the reference's ids; f32 logits equal the
/// reference's (kStrict); int8 activations cost no more than they may; greedy runs differ first
/// where each choice is among the other's most likely (kStrict); fed the reference's tokens, no
/// choice differs by more than noise (kStrict) or hardly one is outside the top (kQuantized).
std::vector<CheckResult> verify_checks(const VerifyOutcome& outcome);

/// A line a prompt: agreed prefix, diverging step (from 1), both choices with their ranks on the
/// other side, the reference's gap between them, near ties and misses of the forced run
/// (kQuantized: other choices inside and outside the top), verdict.
/// @param spelling  a token as text for people
FigureTable verify_table(const VerifyOutcome& outcome, std::string title,
                         const std::function<std::string(TokenId)>& spelling);

/// The three errors apart: f32 against the reference, int8 against f32, int8 against the reference.
FigureTable verify_errors_table(const VerifyOutcome& outcome);

}  // namespace llm
