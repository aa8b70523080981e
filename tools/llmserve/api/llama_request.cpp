// Requests in the shape of llama-server's API.

#include <algorithm>
#include <utility>

#include "tools/llmserve/api/answer_json.h"
#include "tools/llmserve/api/request_steps.h"

namespace llm {
namespace {

constexpr std::size_t kUsualFill = 256;  // room that other files leave for a gap's text

void add_probabilities(RequestBody& body) {
  if (body.top_logprobs.value_or(0) > 0) body.options.logprobs = body.top_logprobs;
}

}  // namespace

Result<AnswerRequest> parse_infill(const OrderedJson& json, const ServedModel& served) {
  RequestBody body;
  LLM_RETURN_IF_ERROR(infill_fields(&served, body).read(json));
  add_probabilities(body);
  LLM_TRY(AnswerRequest request, request_of(body, served));
  request.writer = llama_writer;
  Gap& gap = body.gap;
  gap.before += body.more;
  const std::size_t wanted = std::min(body.max_tokens.value_or(kUsualFill), served.most_new_tokens);
  const std::size_t most = served.context - std::min(served.context, wanted);
  LLM_TRY(auto ids, fill_in_prompt(served.tokenizer(), gap, most, "input_prefix"));
  request.prompts.push_back({.ids = std::move(ids), .text = std::nullopt, .system = ""});
  request.options.max_tokens = body.max_tokens.value_or(served.most_new_tokens);
  LLM_RETURN_IF_ERROR(check_lengths(request, served, "input_prefix"));
  LLM_RETURN_IF_ERROR(check_cost(request, "n_probs"));
  return request;
}

Result<AnswerRequest> parse_llama(const OrderedJson& json, const ServedModel& served) {
  RequestBody body;
  body.options.sampler = kUsualSampling;
  body.parse_special = true;
  LLM_RETURN_IF_ERROR(llama_fields(&served, body).read(json));
  add_probabilities(body);
  LLM_TRY(AnswerRequest request, request_of(body, served));
  request.writer = llama_writer;
  request.timings = true;
  if (count_prompts(*body.prompt) > 1)
    return wrong_field("prompt", "several", "one; /v1/completions takes several");
  LLM_TRY(request.prompts,
          read_prompts(*body.prompt, served.tokenizer(), {.parse_special = body.parse_special}));
  request.options.max_tokens = body.max_tokens.value_or(served.most_new_tokens);
  LLM_RETURN_IF_ERROR(check_lengths(request, served, "prompt"));
  LLM_RETURN_IF_ERROR(check_cost(request, "n_probs"));
  return request;
}

Result<FactsAnswer> template_answer(const OrderedJson& json, const ServedModel& served) {
  RequestBody body;
  LLM_RETURN_IF_ERROR(template_fields(&served, body).read(json));
  LLM_RETURN_IF_ERROR(check_chat(body.chat, "messages"));
  LLM_TRY(const ChatPrompt prompt, chat_prompt(std::move(body.chat), served));
  return FactsAnswer{{{"prompt", prompt.text}}, prompt.notes};
}

}  // namespace llm
