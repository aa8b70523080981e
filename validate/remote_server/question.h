#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/model.h"

namespace llm {

/// What a prompt shows: each kind meets other faults.
enum class QuestionKind { kShort, kSpecial, kLong, kChat };
inline constexpr std::size_t kQuestionKinds = 4;
/// "short", "special", "long", "chat".
std::string_view question_kind_name(QuestionKind kind);

/// A prompt that a server is asked to continue greedily.
struct JudgeQuestion {
  QuestionKind kind;
  std::string text;                        ///< the prompt; of a chat the user's message
  std::optional<std::string> system = {};  ///< of a chat
};

inline constexpr std::size_t kAnswerTokens = 24;  ///< asked for
inline constexpr std::size_t kAnswerTop = 5;      ///< log-probabilities asked for at each token

/// The 20 questions: 6 short, 4 with characters and spellings that tokenizers trip over, 4 long (at
/// least some hundred tokens, beyond the model's window where its context allows), and 6 chats,
/// which are left out where the file has no chat template.
std::vector<JudgeQuestion> judge_questions(const Model& model);

/// What a server reported.
struct ReportedToken {
  std::string bytes;
  double logprob = 0;
};
struct AnsweredToken {
  ReportedToken chosen;
  std::vector<ReportedToken> top;  ///< may have `chosen` among them
};
struct JudgeAnswer {
  std::vector<AnsweredToken> tokens;
  std::optional<std::size_t> prompt_tokens = {};  ///< that the server counted
  std::string refusal = {};                       ///< its words where it did not answer
};

}  // namespace llm
