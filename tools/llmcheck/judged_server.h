#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "validate/judge/question.h"

namespace llm {

/// A server behind OpenAI's API.
class JudgedServer {
 public:
  /// @param url  of the server, with or without /v1
  /// @param model  its name of the model; empty: the first that it lists, or none
  /// @param key  that it asks for; empty: none
  JudgedServer(std::string url, std::string model, std::string key);

  /// Its greedy answer with log-probabilities, asked of /v1/completions, or of
  /// /v1/chat/completions. A refusal of the question (400, 413, 422) is an answer.
  /// Errors, naming the URL: kIo where it is not reached or refuses otherwise; kMalformed for what
  /// is no answer of that API, naming field, value and rule.
  Result<JudgeAnswer> ask(const JudgeQuestion& question) const;

  const std::string& model() const { return model_; }
  /// Takes the name of the first model that it lists, if it lists any and none was given.
  Status find_model();

 private:
  std::string url_;
  std::string model_;
  std::string key_;
};

/// The answer in a body of either API: OpenAI's old logprobs (tokens, token_logprobs, top_logprobs)
/// or new ones (content). Errors: kMalformed.
Result<JudgeAnswer> parse_judge_answer(std::string_view body);

}  // namespace llm
