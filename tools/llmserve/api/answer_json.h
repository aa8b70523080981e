#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/batching/generation_service.h"
#include "engine/chat/reply_parser.h"
#include "tokenizer/stream_decoder.h"
#include "tools/llmserve/api/answer_request.h"
#include "tools/llmserve/api/served_model.h"

namespace llm {

/// Of answers: members in the order in which they were added.
using AnswerJson = OrderedJson;

/// OpenAI's shape of an error. @param param  the field that is wrong, or ""
std::string error_body(std::string_view message, std::string_view type, std::string_view param = "",
                       std::string_view code = "");

/// A GenerateEvent that outlives its call.
struct TextEvent {
  explicit TextEvent(const GenerateEvent& event) : id(event.id), text(event.text) {
    if (event.logprobs != nullptr) logprobs = *event.logprobs;
  }

  std::optional<TokenId> id;
  std::string text;
  std::optional<Logprobs> logprobs;
};

/// The log probabilities of a choice, in the shape of completions or of chats; llama-server's has
/// ids besides.
class LogprobsJson {
 public:
  enum class Shape { kCompletion, kChat, kLlama };
  /// @param continues_text  a leading space of the first token belongs to the text
  LogprobsJson(const Tokenizer& tokenizer, Shape shape, bool continues_text);

  /// @param logprobs  nullptr: of a first token, which nothing precedes
  void add(TokenId id, const Logprobs* logprobs);
  /// The token that ended the text: completions list it, though it is no text, and the others do
  /// not.
  void add_end(const std::optional<Logprobs>& logprobs);
  /// What was added since the last call.
  AnswerJson take();

 private:
  void add_completion(TokenId id, const Logprobs* logprobs);
  AnswerJson chat_token(const TokenLogprob& token) const;

  const Tokenizer* tokenizer_;
  Shape shape_;
  StreamDecoder decoder_;
  std::size_t offset_ = 0;  ///< characters of the text before the next token
  AnswerJson json_;
};

/// Writes an answer in the shape of the API that the request came by, whole or in parts.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  /// All of an answer that is not streamed. @param texts  of the choices, in order
  virtual std::string whole(std::span<const GenerationOutput> texts) const = 0;
  /// The bytes of it, about.
  std::size_t size_of(std::span<const GenerationOutput> texts) const;

  /// Server-sent events of a streamed one: what opens it, what a choice grows by, its end, the end
  /// of all. An empty string is no event.
  virtual std::string opening() { return ""; }
  virtual std::string growth(std::size_t, const TextEvent&) { return ""; }
  /// What tells of a prompt that is evaluated, where AnswerRequest::progress asks for it.
  virtual std::string progress(std::size_t, const PromptProgress&) { return ""; }
  virtual std::string closing(std::size_t, const GenerationOutput&) { return ""; }
  virtual std::string ending() { return ""; }
  virtual const char* stream_type() const { return "text/event-stream"; }
  /// In place of the rest of the answer.
  virtual std::string failure(std::string_view error_body) const;

  std::size_t prompt_tokens() const;

 protected:
  /// @param id  of the answer, before its random digits
  AnswerWriter(const ServedModel& served, const AnswerRequest& request, std::string_view id);

  /// The parts of a whole reply, as whole_parts() gives them.
  /// @param of_cut  what becomes of a call whose arguments a limit has cut
  std::vector<ReplyPart> parts_of(const GenerationOutput& text,
                                  UnfinishedCall of_cut = UnfinishedCall::kCall) const;
  /// A limit ended the text, not the model.
  static bool is_cut(const GenerationOutput& text);
  /// The id of the answer's n-th call: nine letters and digits, as Mistral's templates want it.
  std::string call_id(std::size_t n) const;

  /// The call as the client knows its function; nullptr: by the same name and arguments.
  const ToolOrigin* origin_of(const FunctionCall& call) const;

  const ServedModel& served_;
  const AnswerRequest& request_;
  std::string digits_;
  std::string id_;
  std::int64_t created_;
  std::vector<ReplyParser> parsers_;  ///< of streamed choices
};

/// What Ollama tells of a model's file.
AnswerJson ollama_details(const ServedModel& served);
/// How each of Ollama's answers begins: model and time.
AnswerJson ollama_envelope(const ServedModel& served);

/// The one text that is the arguments of a call whose function takes one.
std::string input_text(const FunctionCall& call);

/// "data: ...", after "event: ..." where it has a name.
std::string server_event(const AnswerJson& json, std::string_view name = "");

// The writers of APIs that are read elsewhere than they are written.
std::unique_ptr<AnswerWriter> completion_writer(const ServedModel& served,
                                                const AnswerRequest& request);
std::unique_ptr<AnswerWriter> llama_writer(const ServedModel& served, const AnswerRequest& request);
std::unique_ptr<AnswerWriter> responses_writer(const ServedModel& served,
                                               const AnswerRequest& request);
std::unique_ptr<AnswerWriter> messages_writer(const ServedModel& served,
                                              const AnswerRequest& request);
/// Replies as messages.
std::unique_ptr<AnswerWriter> ollama_chat_writer(const ServedModel& served,
                                                 const AnswerRequest& request);
/// Replies as texts.
std::unique_ptr<AnswerWriter> ollama_text_writer(const ServedModel& served,
                                                 const AnswerRequest& request);

}  // namespace llm
