#pragma once

#include <optional>
#include <span>
#include <string>

#include "tokenizer/tokenizer.h"
#include "validate/remote_server/answer_fit.h"

namespace llm {

struct SamplerFault {
  std::string name;
  std::string detail;
};

/// Tokens chosen that are not the most likely ones by the server's own log-probabilities, and why.
std::optional<SamplerFault> find_sampler_fault(const Tokenizer& tokenizer,
                                               std::span<const JudgeQuestion> questions,
                                               std::span<const AnsweredPositions> answers);

}  // namespace llm
