#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/batching/generation_service.h"
#include "engine/chat/reply_parser.h"
#include "tools/llmserve/api/prompts.h"
#include "tools/llmserve/api/served_model.h"
#include "tools/llmserve/conversations/json_fields.h"
#include "validate/provenance/receipt.h"

namespace llm {

struct RequestBody;

class AnswerWriter;
struct AnswerRequest;
/// Makes what writes the answer to a request. Both outlive it.
using MakeWriter =
    std::function<std::unique_ptr<AnswerWriter>(const ServedModel&, const AnswerRequest&)>;

/// How the reply of a conversation is taken apart.
struct ReplyShape {
  ReplyFormat format;
  OrderedJson tools;  ///< as the request has them, in OpenAI's shape; null: none
  bool is_thinking = false;
  std::size_t most_calls = 128;
  ToolOrigins origins = {};  ///< of functions that the client calls otherwise
};

/// The body of a request that runs the model, understood.
struct AnswerRequest {
  MakeWriter writer;     ///< of the endpoint's answer; none is needed with `at_once`
  bool is_chat = false;  ///< the answer is the reply of a conversation
  ReplyShape reply;      ///< of a conversation
  std::vector<Prompt> prompts;
  std::size_t n = 1;           ///< choices of each prompt
  GenerateOptions options;     ///< of every choice, as they were asked for
  bool parse_special = false;  ///< in the prompts' texts
  bool echo = false;           ///< the prompt is the choice's beginning
  bool stream = false;
  bool include_usage = false;
  bool logits_hash = false;
  bool receipt = false;
  std::optional<EmbeddingOptions> embedding = {};  ///< in place of texts
  bool timings = false;                            ///< the answer has them
  bool progress = false;             ///< a streamed answer tells how far the prompt is
  std::vector<float> adapters = {};  ///< as GenerationRequest::adapters
  RequestNotes notes = {};
  std::optional<OrderedJson> at_once = {};  ///< the answer, where it needs no text
  /// Keywords of functions' schemas that calls are not kept to, by their places.
  std::vector<std::string> not_enforced = {};

  ReplyParser reply_parser() const {
    return {reply.format, reply.tools, reply.is_thinking, reply.most_calls};
  }
  std::size_t n_choices() const { return prompts.size() * n; }
  /// The choice of that index: prompt after prompt, the n of a prompt one after another. The draws
  /// of a prompt's first choice are llmrun's; the others differ in GenerateOptions::sequence.
  GenerationRequest choice(std::size_t index, const ServedModel& served) const;
  /// A leading space of the choice's text is kept.
  bool continues_text(std::size_t index) const;
  std::uint64_t sequence_of(std::size_t index) const { return index % n; }
  const Prompt& prompt_of(std::size_t index) const { return prompts[index / n]; }
};

/// Defaults are OpenAI's: temperature 1, no filters, 16 new tokens for completions and as many as
/// the context holds for a chat. The seed is random unless given.
/// Errors: kUsage naming the field.
Result<AnswerRequest> parse_completion(const OrderedJson& body, const ServedModel& served);
/// The text of a gap: as many new tokens as the context holds.
Result<AnswerRequest> parse_infill(const OrderedJson& body, const ServedModel& served);
/// llama-server's /completion, with its defaults of sampling.
Result<AnswerRequest> parse_llama(const OrderedJson& body, const ServedModel& served);
Result<AnswerRequest> parse_chat(const OrderedJson& body, const ServedModel& served);
Result<AnswerRequest> parse_responses(const OrderedJson& body, const ServedModel& served);
Result<AnswerRequest> parse_messages(const OrderedJson& body, const ServedModel& served);
Result<AnswerRequest> parse_ollama_chat(const OrderedJson& body, const ServedModel& served);
Result<AnswerRequest> parse_ollama_text(const OrderedJson& body, const ServedModel& served);

// What every request is asked. Errors: kUsage naming the field; kResource where the context is too
// short.

/// The scales of adapters that a body asks for. Errors: kUsage
Result<std::vector<float>> adapters_of(const RequestBody& body, const ServedModel& served);
/// Before anything is made of the prompts. @param field  where they stand
Status check_choices(std::size_t n_prompts, std::size_t n, const ServedModel& served,
                     const std::string& field = "prompt");
/// The longest prompt fits; its new tokens are cut to what fits after it.
Status check_lengths(AnswerRequest& request, const ServedModel& served, const std::string& field);

// Whole answers without texts that are generated: the number of tokens of a conversation of
// /v1/messages; the ids of a text or a conversation; the text of ids. Errors: as above.

/// An answer that needs no text, and what of its request is to be told.
struct FactsAnswer {
  OrderedJson json;
  RequestNotes notes = {};
};
/// llama-server's /apply-template, and Ollama's /api/show.
Result<FactsAnswer> template_answer(const OrderedJson& body, const ServedModel& served);
Result<FactsAnswer> show_answer(const OrderedJson& body, const ServedModel& served);
Result<FactsAnswer> count_answer(const OrderedJson& body, const ServedModel& served);
Result<FactsAnswer> tokenize_answer(const OrderedJson& body, const ServedModel& served);
Result<FactsAnswer> detokenize_answer(const OrderedJson& body, const ServedModel& served);
/// llama-server's POST /lora-adapters: the scales of requests that ask for none.
Result<FactsAnswer> adapters_answer(const OrderedJson& body, const ServedModel& served);

/// What `llmcheck --replay` needs to check a choice. @pre the text has its hashes
Receipt receipt_of(const ServedModel& served, const AnswerRequest& request, std::size_t index,
                   const GenerationOutput& text);

}  // namespace llm
