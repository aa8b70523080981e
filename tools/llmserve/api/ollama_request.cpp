// Requests in the shape of Ollama's API.

#include <utility>

#include "tools/llmserve/api/answer_json.h"
#include "tools/llmserve/api/request_steps.h"

namespace llm {
namespace {

/// The answer to a request that says nothing: clients load a model by it.
AnswerRequest loaded_answer(const OrderedJson& json, bool is_chat, const ServedModel& served) {
  AnswerRequest request;
  const bool unloads = json.value("keep_alive", OrderedJson()) == 0;
  OrderedJson answer = ollama_envelope(served);
  if (is_chat)
    answer["message"] = {{"role", "assistant"}, {"content", ""}};
  else
    answer["response"] = "";
  answer.update({{"done", true}, {"done_reason", unloads ? "unload" : "load"}});
  request.at_once = std::move(answer);
  return request;
}

/// A prompt that is continued as it stands, special tokens and all.
Result<AnswerRequest> parse_ollama_raw(const RequestBody& body, const ServedModel& served) {
  LLM_TRY(AnswerRequest request, request_of(body, served));
  request.writer = ollama_text_writer;
  request.parse_special = body.is_raw;
  LLM_TRY(request.prompts, read_prompts(body.more, served.tokenizer(),
                                        {.parse_special = body.is_raw, .suffix = body.suffix}));
  request.options.max_tokens = body.max_tokens.value_or(served.most_new_tokens);
  LLM_RETURN_IF_ERROR(check_lengths(request, served, "prompt"));
  LLM_RETURN_IF_ERROR(check_cost(request, "top_logprobs"));
  return request;
}

}  // namespace

Result<AnswerRequest> parse_ollama_chat(const OrderedJson& json, const ServedModel& served) {
  RequestBody body;
  LLM_RETURN_IF_ERROR(ollama_chat_fields(&served, body).read(json));
  LLM_RETURN_IF_ERROR(set_logprobs(body));
  if (body.chat.messages.empty()) return loaded_answer(json, true, served);
  body.chat.continues_reply = true;  // if it has begun
  return reply_to(body, {.writer = ollama_chat_writer}, served);
}

Result<AnswerRequest> parse_ollama_text(const OrderedJson& json, const ServedModel& served) {
  RequestBody body;
  LLM_RETURN_IF_ERROR(ollama_text_fields(&served, body).read(json));
  LLM_RETURN_IF_ERROR(set_logprobs(body));
  if (body.more.empty() && body.suffix.empty()) return loaded_answer(json, false, served);
  if (body.is_raw || !body.suffix.empty()) return parse_ollama_raw(body, served);
  if (!body.instructions.empty()) body.chat.add_system(body.instructions);
  body.chat.add("user", body.more);
  return reply_to(body, {.writer = ollama_text_writer, .messages = "prompt"}, served);
}

Result<FactsAnswer> show_answer(const OrderedJson& json, const ServedModel& served) {
  RequestBody body;
  LLM_RETURN_IF_ERROR(show_fields(&served, body).read(json));
  const HyperParameters& config = served.model->config();
  const std::string architecture(config.architecture->name);
  const auto& fim = served.tokenizer().spec().fim;
  OrderedJson capabilities = {"completion"};
  if (served.style) capabilities.push_back("tools");
  if (fim.prefix && fim.suffix && fim.middle) capabilities.push_back("insert");
  if (!served.reply_format.think_begin.empty()) capabilities.push_back("thinking");
  if (served.pooling || pooling_of(config).ok()) capabilities.push_back("embedding");
  OrderedJson info = {
      {"general.architecture", architecture},
      {"general.name", served.model->name()},
      {architecture + ".context_length", served.context},
      {architecture + ".embedding_length", config.d_model},
      {architecture + ".block_count", config.n_layers},
      {architecture + ".attention.head_count", config.most(&LayerSpec::n_heads)},
      {architecture + ".attention.head_count_kv", config.most(&LayerSpec::n_kv_heads)},
      {architecture + ".vocab_size", config.n_vocab}};
  return FactsAnswer{{{"license", ""},
                      {"modelfile", ""},
                      {"parameters", ""},
                      {"template", served.style ? served.style->source() : ""},
                      {"details", ollama_details(served)},
                      {"model_info", std::move(info)},
                      {"capabilities", std::move(capabilities)}},
                     std::move(body.chat.notes)};
}

}  // namespace llm
