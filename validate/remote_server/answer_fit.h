#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "validate/remote_server/question.h"
#include "validate/remote_server/serving_hypothesis.h"

namespace llm {

/// What a server reported at one position, in this vocabulary.
struct AnsweredPosition {
  struct Reported {
    std::vector<TokenId> ids;  ///< tokens of those bytes; none: of another vocabulary, or hidden
    double logprob;
  };
  std::vector<Reported> reported;  ///< each bytes once
  std::size_t chosen = 0;          ///< index in `reported`

  /// How much likelier than the chosen token the likeliest is, by the server's own report; 0 where
  /// the server is greedy.
  double passed_over() const;
  std::size_t likeliest() const;
};
using AnsweredPositions = std::vector<AnsweredPosition>;

/// Answers in a vocabulary.
class AnswerReader {
 public:
  explicit AnswerReader(const Tokenizer& tokenizer);
  AnsweredPositions read(const JudgeAnswer& answer) const;

 private:
  std::unordered_map<std::string, std::vector<TokenId>> ids_;  ///< words before other kinds
};

/// What this engine says at the positions of one answer, its history being the server's tokens.
struct OwnRows {
  std::vector<std::vector<double>> logprobs;  ///< of reported tokens; NaN: of none
  std::vector<TokenId> first;                 ///< the most likely token
  std::vector<double> lead;                   ///< how much likelier it is than the chosen one
  bool empty() const { return logprobs.empty(); }
};

/// Evaluates a prompt with the answer behind it, served that way. Positions end behind the first
/// chosen token that the vocabulary lacks, and where the context does.
/// Errors: ServingHypothesis::prompt()'s, the engine's. Cost: one prefill.
Result<OwnRows> own_rows(Sequence& session, const ServingHypothesis& way,
                         const JudgeQuestion& question, const JudgeAnswer& answer,
                         std::span<const AnsweredPosition> positions);

/// The log-probabilities that the server reported, as OwnRows has its own.
OwnRows reported_rows(std::span<const AnsweredPosition> positions);

/// The root mean square of differences at each position where both have a number; NaN without.
std::vector<double> differences(const OwnRows& a, const OwnRows& b);
/// The median of those that are numbers; NaN without.
double median_of(std::vector<double> values);
/// Whether both have the same numbers everywhere, and none lacks.
bool equal_rows(const OwnRows& own, const OwnRows& reported);

}  // namespace llm
