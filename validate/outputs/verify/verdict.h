#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tokenizer/vocab_spec.h"
#include "validate/outputs/verify/reference.h"
#include "validate/report/report.h"

namespace llm {

/// The k largest logits, of equal ones the lower id first. @pre finite; 1 <= k <= logits.size()
TopStep top_step(std::span<const float> logits, std::size_t k);

/// Place of `id` in a step, 1 the most likely; nothing when it is not among the top.
std::optional<std::size_t> rank_in(const TopStep& step, TokenId id);

/// How far the reference prefers its own choice over `other`: the difference of its two logits. For
/// a token outside the reference's top that is only known to be at least the difference to the last
/// of the top, which is returned.
double preference_gap(const TopStep& reference, TokenId other);

/// Two choices for one step that differ.
struct ChoiceMismatch {
  std::size_t step = 0;
  TokenId reference = 0;
  TokenId engine = 0;
  std::optional<std::size_t> reference_rank;  ///< of the reference's choice, in the engine's top
  std::optional<std::size_t> engine_rank;     ///< of the engine's choice, in the reference's top
  double gap = 0;                             ///< preference_gap of the reference

  /// Whether each side's choice is among the other's most likely.
  bool included() const { return reference_rank && engine_rank; }
};

/// A greedy run side by side with the reference's.
struct Lockstep {
  std::size_t agreed = 0;                  ///< equal choices before the first that differ
  std::optional<ChoiceMismatch> mismatch;  ///< the first; what follows it cannot be compared

  bool passed() const { return !mismatch || mismatch->included(); }
};

/// @param engine  its steps, each after its own earlier choices, at least up to the first mismatch
Lockstep compare_lockstep(std::span<const TopStep> reference, std::span<const TopStep> engine);

/// Every step by itself, the engine being fed the reference's tokens.
struct Forced {
  std::size_t steps = 0;
  std::vector<ChoiceMismatch> mismatches;  ///< steps with another choice

  /// Mismatches that noise does not explain. Two logits that each move by at most `noise` change
  /// their order only if their gap is at most 2 noise. A NaN noise explains nothing.
  std::size_t misses(double noise) const;
  /// Mismatches where one side's choice is not among the other's most likely.
  std::size_t outside() const;
};

/// @pre equal sizes
Forced compare_forced(std::span<const TopStep> reference, std::span<const TopStep> engine);

/// Differences between two evaluations of the same tokens, over all logits of all rows.
class LogitNoise {
 public:
  /// @pre equal sizes
  void add(std::span<const float> actual, std::span<const float> expected);

  std::size_t count() const { return sizes_.size(); }
  /// The size below which 99.9 % of the differences stay (nearest rank); 0 without any.
  double p999() const;
  double max() const;
  /// sum (a - e)^2 / sum e^2; 0 without any. NaN and Inf go through, so `nmse() <= limit` fails.
  double nmse() const;

 private:
  std::vector<float> sizes_;
  double error_ = 0;
  double signal_ = 0;
};

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
