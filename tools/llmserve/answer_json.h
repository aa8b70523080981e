#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/serve/text_service.h"
#include "tokenizer/stream_decoder.h"
#include "tools/llmserve/answer_request.h"
#include "tools/llmserve/served_model.h"

namespace llm {

/// Of answers: members in the order in which they were added.
using AnswerJson = OrderedJson;

/// On one line. Bytes that are no UTF-8 become U+FFFD.
std::string dump(const AnswerJson& json);

/// OpenAI's shape of an error. @param param  the field that is wrong, or ""
std::string error_body(std::string_view message, std::string_view type, std::string_view param = "",
                       std::string_view code = "");

/// A GenerateEvent that outlives its call.
struct TextEvent {
  std::optional<TokenId> id;
  std::string text;
  std::optional<Logprobs> logprobs;
};

/// The log probabilities of a choice, in the shape of completions or of chats.
class LogprobsJson {
 public:
  /// @param continues_text  a leading space of the first token belongs to the text
  LogprobsJson(const Tokenizer& tokenizer, bool is_chat, bool continues_text);

  /// @param logprobs  nullptr: of a first token, which nothing precedes
  void add(TokenId id, const Logprobs* logprobs);
  /// The token that ended the text: completions list it, though it is no text, and chats do not.
  void add_end(const std::optional<Logprobs>& logprobs);
  /// What was added since the last call.
  AnswerJson take();

 private:
  void add_completion(TokenId id, const Logprobs* logprobs);
  AnswerJson chat_token(const TokenLogprob& token) const;

  const Tokenizer* tokenizer_;
  bool is_chat_;
  StreamDecoder decoder_;
  std::size_t offset_ = 0;  ///< characters of the text before the next token
  AnswerJson json_;
};

/// Writes an answer as OpenAI's API shapes it, whole or in parts.
class AnswerWriter {
 public:
  /// @param request  outlives this
  AnswerWriter(const ServedModel& served, const AnswerRequest& request);

  /// All of an answer that is not streamed. @param texts  of the choices, in order
  std::string whole(std::span<const ServedText> texts) const;
  /// The bytes of it, about.
  std::size_t size_of(std::span<const ServedText> texts) const;

  /// Server-sent events of a streamed one: what opens it (the role, or the prompt's echo), what a
  /// choice grows by, its end, the end of all. An empty string is no event.
  std::string opening();
  std::string growth(std::size_t index, const TextEvent& event);
  std::string closing(std::size_t index, const ServedText& text);
  std::string ending() const;
  /// In place of the rest of the answer.
  static std::string failure(std::string_view error_body);

  std::size_t prompt_tokens() const;
  std::size_t completion_tokens() const { return completion_tokens_; }

 private:
  AnswerJson envelope(std::string_view object) const;
  AnswerJson usage(std::size_t completion_tokens) const;
  /// llama-server's shape. @param text  nullptr: `piece` of it, which goes on
  AnswerJson infill(std::size_t index, std::string_view piece, const ServedText* text) const;
  AnswerJson choice(std::size_t index, const ServedText& text) const;
  std::string chunk(AnswerJson choices) const;
  std::string chunk_of(std::size_t index, AnswerJson content, AnswerJson logprobs,
                       AnswerJson finish_reason) const;

  const ServedModel& served_;
  const AnswerRequest& request_;
  std::string id_;
  std::int64_t created_;
  std::vector<LogprobsJson> logprobs_;  ///< of streamed choices
  std::size_t completion_tokens_ = 0;
};

}  // namespace llm
