#include "tools/llmserve/api/answer_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

#include "engine/generation/conversation.h"
#include "quant/numerics/contract.h"
#include "tools/common/option_pages.h"
#include "tools/llmserve/api/answer_json.h"
#include "tools/llmserve/api/prompts.h"
#include "tools/llmserve/api/request_fields.h"
#include "tools/llmserve/api/request_steps.h"
#include "tools/llmserve/conversations/call_grammar.h"

namespace llm {
namespace {

constexpr std::size_t kMostPromptTokens = std::size_t{1} << 22;
constexpr std::size_t kMostValues = std::size_t{1} << 20;
constexpr std::size_t kUsualNewTokens = 16;

}  // namespace

Status check_cost(const AnswerRequest& request, const std::string& field) {
  const GenerateOptions& options = request.options;
  std::size_t n_prompt = 0;
  for (const Prompt& prompt : request.prompts) n_prompt += prompt.ids.size();
  if (n_prompt * request.n > kMostPromptTokens) {
    return wrong_field("n", fmt::format("{} tokens of prompts in all", n_prompt * request.n),
                       fmt::format("at most {}", kMostPromptTokens));
  }
  const std::size_t n_new = request.prompts.size() * *options.max_tokens;
  const std::size_t n_biases = options.logit_bias ? options.logit_bias->size() : 0;
  std::size_t n = request.echo ? n_prompt : 0;
  if (options.logprobs) n = (n + n_new) * (*options.logprobs + 1);
  const std::size_t n_rules = options.grammar ? options.grammar->source().text.size() / 8 : 0;
  if (request.receipt) n += n_prompt + request.prompts.size() * (n_biases + n_rules);
  n *= request.n;
  if (n <= kMostValues) return Ok{};
  return wrong_field(options.logprobs ? field
                     : request.echo   ? "echo"
                                      : "receipt",
                     fmt::format("{} values in all", n),
                     fmt::format("at most {}; lower max_tokens or n", kMostValues));
}

Result<std::vector<float>> adapters_of(const RequestBody& body, const ServedModel& served) {
  if (served.adapters != nullptr) return served.adapters->wanted(body.lora, body.model);
  return ServedAdapters({}, false).wanted(body.lora, body.model);
}

Result<AnswerRequest> request_of(const RequestBody& body, const ServedModel& served) {
  for (const auto& [name, wanted] :
       {std::pair("logits_hash", body.logits_hash), std::pair("receipt", body.receipt)}) {
    if (wanted && body.stream)
      return wrong_field(name, "true with stream", "a response that is not streamed");
  }
  if (body.has_stream_options && !body.stream)
    return wrong_field("stream_options", "it without stream", "stream as well");
  if (body.options.ignore_eos && !body.structure.empty())
    return wrong_field("ignore_eos", "true with " + body.structure.front().path,
                       "false: structured output ends when it is complete");
  AnswerRequest request;
  request.n = body.n;
  request.options = body.options;
  LLM_TRY(request.options.grammar, compile_structure(body.structure, served));
  // 32 random bits, as llmrun's.
  request.options.sampler.seed =
      body.seed < 0 ? std::random_device()() : static_cast<std::uint64_t>(body.seed);
  request.parse_special = body.parse_special;
  request.echo = body.echo;
  request.stream = body.stream;
  request.include_usage = body.include_usage;
  request.logits_hash = body.logits_hash;
  request.receipt = body.receipt;
  request.timings = body.timings;
  request.progress = body.progress;
  LLM_TRY(request.adapters, adapters_of(body, served));
  if (body.receipt && std::ranges::any_of(request.adapters, [](float scale) { return scale != 0; }))
    return wrong_field("receipt", "true with an adapter",
                       "a text without adapters, which a receipt does not name");
  request.notes = body.chat.notes;
  return request;
}

Status check_choices(std::size_t n_prompts, std::size_t n, const ServedModel& served,
                     const std::string& field) {
  if (n_prompts * n <= served.most_texts) return Ok{};
  return wrong_field(n_prompts > served.most_texts ? field : "n",
                     fmt::format("{} outputs to generate", n_prompts * n),
                     fmt::format("at most {}", served.most_texts));
}

Status check_lengths(AnswerRequest& request, const ServedModel& served, const std::string& field) {
  std::size_t longest = 0;
  for (const Prompt& prompt : request.prompts) longest = std::max(longest, prompt.ids.size());
  if (longest > served.context) {
    Error error = wrong_field(field, fmt::format("{} tokens", longest),
                              fmt::format("at most {} (the context)", served.context));
    error.code = ErrorCode::kResource;
    return error;
  }
  const std::size_t room = Scheduler::most_new(served.context, longest);
  std::size_t& wanted = *request.options.max_tokens;
  wanted = std::min({wanted, room, served.most_new_tokens});
  return Ok{};
}

bool AnswerRequest::continues_text(std::size_t index) const {
  const Prompt& prompt = prompt_of(index);
  return !is_chat && (!prompt.text || !prompt.text->empty());
}

GenerationRequest AnswerRequest::choice(std::size_t index, const ServedModel& served) const {
  const Prompt& prompt = prompt_of(index);
  GenerationRequest request{.prompt = prompt.ids, .options = options};
  request.options.message_ends = prompt.message_ends;
  request.options.sequence = sequence_of(index);
  request.options.continues_text = continues_text(index);
  if (is_chat) {
    served.style->add_reply_ends(request.options);
    request.options.show_special = served.reply_shows_special;
  }
  request.prompt_logprobs = echo && options.logprobs.has_value();
  request.hash_logits = logits_hash;
  request.hash_drawn = receipt || (served.logs_receipts && !embedding);
  request.embedding = embedding;
  request.adapters = adapters;
  return request;
}

Result<AnswerRequest> parse_completion(const OrderedJson& json, const ServedModel& served) {
  RequestBody body;
  LLM_RETURN_IF_ERROR(completion_fields(&served, body).read(json));
  LLM_TRY(AnswerRequest request, request_of(body, served));
  request.writer = completion_writer;
  if (body.echo && body.options.logprobs && body.stream)
    return wrong_field("echo", "true with logprobs and stream", "a response that is not streamed");
  if (body.echo && !body.suffix.empty())
    return wrong_field("echo", "true with suffix", "one of them");
  LLM_RETURN_IF_ERROR(check_choices(count_prompts(*body.prompt), request.n, served));
  LLM_TRY(request.prompts,
          read_prompts(*body.prompt, served.tokenizer(),
                       {.parse_special = body.parse_special, .suffix = body.suffix}));
  request.options.max_tokens =
      body.max_tokens.value_or(std::min(kUsualNewTokens, served.most_new_tokens));
  LLM_RETURN_IF_ERROR(check_lengths(request, served, "prompt"));
  LLM_RETURN_IF_ERROR(check_cost(request, "logprobs"));
  return request;
}

Result<AnswerRequest> reply_to(RequestBody& body, const ReplyApi& api, const ServedModel& served) {
  LLM_RETURN_IF_ERROR(check_chat(body.chat, api.messages));
  LLM_TRY(CallGrammar calls, call_grammar(served.reply_format, body.chat, api.schema_place));
  const bool is_forced = calls.source && body.chat.choice.kind != ToolChoice::Kind::kAuto;
  if (calls.source && (is_forced || body.structure.empty()))
    body.structure.push_back({is_forced ? "tool_choice" : "tools", *std::move(calls.source)});
  // A reply whose form is given has no room for thoughts.
  const bool has_form = !body.structure.empty();
  if (has_form && !body.chat.variables.contains("enable_thinking"))
    body.chat.variables["enable_thinking"] = false;
  LLM_TRY(AnswerRequest request, request_of(body, served));
  request.writer = api.writer;
  request.is_chat = true;
  LLM_RETURN_IF_ERROR(check_choices(1, request.n, served));
  request.not_enforced = std::move(calls.dropped);
  request.reply.format = served.reply_format;
  request.reply.tools = body.chat.tools;
  request.reply.origins = body.chat.origins;
  const bool parallel = body.chat.parallel_calls;
  LLM_TRY(ChatPrompt prompt, chat_prompt(std::move(body.chat), served));
  request.notes = std::move(prompt.notes);
  request.reply.is_thinking = prompt.is_thinking && !has_form;
  request.reply.most_calls = parallel ? request.reply.most_calls : 1;
  request.prompts.push_back(std::move(prompt.prompt));
  request.options.max_tokens = body.max_tokens.value_or(served.most_new_tokens);
  LLM_RETURN_IF_ERROR(check_lengths(request, served, api.messages));
  LLM_RETURN_IF_ERROR(check_cost(request, "top_logprobs"));
  return request;
}

Status set_logprobs(RequestBody& body) {
  const std::size_t top = body.top_logprobs.value_or(0);
  if (body.wants_logprobs) body.options.logprobs = top;
  if (top == 0 || body.wants_logprobs) return Ok{};
  return wrong_field("top_logprobs", std::to_string(top), "logprobs as well");
}

/// As vLLM has it.
static Result<bool> continues_reply(const RequestBody& body) {
  if (!body.continue_final && !body.add_generation_prompt)
    return wrong_field("add_generation_prompt", "false", "continue_final_message as well");
  if (!body.continue_final) return false;
  const OrderedJson& messages = body.chat.messages;
  if (!messages.empty() && messages.back()["role"] == "assistant") return true;
  return wrong_field("continue_final_message", "true", "a last message of the assistant");
}

Result<AnswerRequest> parse_chat(const OrderedJson& json, const ServedModel& served) {
  RequestBody body;
  LLM_RETURN_IF_ERROR(chat_fields(&served, body).read(json));
  LLM_RETURN_IF_ERROR(set_logprobs(body));
  if (const auto most = body.max_completion_tokens)
    body.max_tokens = std::min(body.max_tokens.value_or(*most), *most);
  LLM_TRY(body.chat.continues_reply, continues_reply(body));
  return reply_to(body, {.writer = completion_writer}, served);
}

Result<AnswerRequest> parse_responses(const OrderedJson& json, const ServedModel& served) {
  RequestBody body;
  LLM_RETURN_IF_ERROR(responses_fields(&served, body).read(json));
  if (!body.instructions.empty()) body.chat.add_system(body.instructions);
  return reply_to(body,
                  {.writer = responses_writer, .messages = "input", .schema_place = "/parameters"},
                  served);
}

Result<AnswerRequest> parse_messages(const OrderedJson& json, const ServedModel& served) {
  RequestBody body;
  LLM_RETURN_IF_ERROR(messages_fields(&served, body).read(json));
  body.chat.continues_reply = true;  // if it has begun
  return reply_to(body, {.writer = messages_writer, .schema_place = "/input_schema"}, served);
}

Result<FactsAnswer> count_answer(const OrderedJson& json, const ServedModel& served) {
  RequestBody body;
  LLM_RETURN_IF_ERROR(count_fields(&served, body).read(json));
  LLM_RETURN_IF_ERROR(check_chat(body.chat, "messages"));
  LLM_TRY(const ChatPrompt prompt, chat_prompt(std::move(body.chat), served));
  return FactsAnswer{{{"input_tokens", prompt.prompt.ids.size()}}, prompt.notes};
}

Result<FactsAnswer> tokenize_answer(const OrderedJson& json, const ServedModel& served) {
  RequestBody body;
  LLM_RETURN_IF_ERROR(tokenize_fields(&served, body).read(json));
  if (!body.prompt && body.parse_special)
    return wrong_field("parse_special", "true with messages", "a prompt");
  std::vector<TokenId> ids;
  RequestNotes notes = body.chat.notes;
  if (!body.prompt) {
    LLM_RETURN_IF_ERROR(check_chat(body.chat, "messages"));
    LLM_TRY(const ChatPrompt prompt, chat_prompt(std::move(body.chat), served));
    ids = prompt.prompt.ids;
    notes = prompt.notes;
  } else if (body.prompt->is_string()) {
    ids = prompt_ids(served.tokenizer(), body.prompt->get<std::string>(), body.add_special,
                     body.parse_special);
  } else {
    return wrong_field("prompt", shown_json(*body.prompt), "a string");
  }
  return FactsAnswer{{{"count", ids.size()}, {"max_model_len", served.context}, {"tokens", ids}},
                     std::move(notes)};
}

Result<FactsAnswer> detokenize_answer(const OrderedJson& json, const ServedModel& served) {
  RequestBody body;
  LLM_RETURN_IF_ERROR(detokenize_fields(&served, body).read(json));
  return FactsAnswer{{{"prompt", served.tokenizer().decode(body.tokens)}}};
}

Result<FactsAnswer> adapters_answer(const OrderedJson& json, const ServedModel& served) {
  // llama-server's clients send the list alone.
  const OrderedJson object = json.is_array() ? OrderedJson{{"lora", json}} : json;
  RequestBody body;
  LLM_RETURN_IF_ERROR(adapter_fields(&served, body).read(object));
  if (body.lora == nullptr) return wrong_field("lora", "nothing", "an array of adapters");
  LLM_TRY(auto scales, adapters_of(body, served));
  if (served.adapters != nullptr) served.adapters->set_scales(std::move(scales));
  return FactsAnswer{{{"success", true}}};
}

Receipt receipt_of(const ServedModel& served, const AnswerRequest& request, std::size_t index,
                   const GenerationOutput& text) {
  const Prompt& prompt = request.prompt_of(index);
  const GenerateOptions& options = request.options;
  Receipt receipt;
  receipt.contract_version = contract::kContractVersion;
  receipt.engine_version = version();
  receipt.model_name = served.model->name();
  receipt.model_sha256 = served.model->file_sha256();
  receipt.prompt = prompt.text;
  if (prompt.messages.is_null()) receipt.system = prompt.system;
  for (const OrderedJson& message : prompt.messages)
    receipt.messages.push_back({message["role"], message["content"]});
  if (request.is_chat) receipt.chat_template = served.style->name();
  receipt.parse_special = request.parse_special;
  receipt.show_special = request.is_chat && served.reply_shows_special;
  receipt.sampler = options.sampler;
  receipt.sequence = request.sequence_of(index);
  receipt.max_tokens = options.max_tokens;
  receipt.stop = options.stop;
  receipt.ignore_eos = options.ignore_eos;
  if (options.logit_bias != nullptr) receipt.logit_bias = *options.logit_bias;
  if (options.grammar != nullptr) receipt.grammar = options.grammar->source();
  receipt.context = served.context;
  receipt.kv = served.kv;
  receipt.compute = served.model->compute();
  receipt.prompt_ids = prompt.ids;
  receipt.ids = text.result.ids;
  receipt.text = text.result.text;
  receipt.stop_reason = text.result.stop_reason;
  receipt.drawn_logits_sha256 = text.drawn_logits_sha256;
  return receipt;
}

}  // namespace llm
