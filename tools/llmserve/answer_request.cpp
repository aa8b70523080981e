#include "tools/llmserve/answer_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <utility>

#include "engine/generate/conversation.h"
#include "tools/llmserve/fill_in.h"

namespace llm {
namespace {

constexpr std::size_t kMostStops = 16;
constexpr std::size_t kMostStopBytes = 1024;
constexpr std::int64_t kMostLogprobs = 20;
constexpr std::int64_t kMostChoices = 128;
constexpr std::size_t kMostPromptTokens = std::size_t{1} << 22;
constexpr std::size_t kMostValues = std::size_t{1} << 20;
constexpr std::size_t kUsualNewTokens = 16;
constexpr std::size_t kUsualFill = 256;  // room that other files leave for a gap's text

/// What other servers offer and this one does not, with the values that ask for nothing.
void read_unsupported(JsonFields& fields) {
  const Json nothing = Json::array();
  fields.only("frequency_penalty", Json::array({0}));
  fields.only("presence_penalty", Json::array({0}));
  fields.only("best_of", Json::array({1}));
  fields.only("response_format", Json::array({Json::object({{"type", "text"}})}));
  fields.only("tools", Json::array({nothing}));
  fields.only("functions", Json::array({nothing}));
  fields.only("tool_choice", Json::array({"none", "auto"}));
  fields.only("parallel_tool_calls", Json::array({true, false}));
  fields.only("modalities", Json::array({Json::array({"text"})}));
  fields.only("service_tier", Json::array({"auto", "default"}));
  fields.only("store", Json::array({false}));
  fields.only("metadata", Json::array({Json::object()}));
}

void read_sampling(JsonFields& fields, GenerateOptions& options) {
  SamplerOptions& sampler = options.sampler;
  fields.real("temperature", sampler.temperature, 0, 100);
  fields.real("top_p", sampler.top_p, 0, 1);
  fields.integer("top_k", sampler.top_k, 0, INT32_MAX);
  fields.real("min_p", sampler.min_p, 0, 1);
  fields.real("repeat_penalty", sampler.repeat_penalty, 0.01, 100);
  fields.integer("repeat_last_n", sampler.repeat_last_n, -1, INT32_MAX);
  std::int64_t seed = -1;
  fields.integer("seed", seed, -1, std::numeric_limits<std::int64_t>::max());
  // 32 random bits, as llmrun's.
  sampler.seed = seed < 0 ? std::random_device()() : static_cast<std::uint64_t>(seed);
  fields.flag("ignore_eos", options.ignore_eos);
}

void read_stops(JsonFields& fields, GenerateOptions& options) {
  const Json* stop = fields.find("stop");
  if (stop == nullptr) return;
  const std::size_t n = stop->is_array() ? stop->size() : 1;
  if (n > kMostStops)
    return fields.fail("stop", fmt::format("{} strings", n), fmt::format("at most {}", kMostStops));
  for (std::size_t i = 0; i < n; ++i) {
    const Json& one = stop->is_array() ? (*stop)[i] : *stop;
    if (!one.is_string() || one.get_ref<const std::string&>().empty() ||
        one.get_ref<const std::string&>().size() > kMostStopBytes) {
      return fields.fail("stop", shown_json(one),
                         fmt::format("strings of 1 to {} bytes", kMostStopBytes));
    }
    options.stop.push_back(one.get<std::string>());
  }
}

void read_logit_bias(JsonFields& fields, const Tokenizer& tokenizer, GenerateOptions& options) {
  const Json* biases = fields.find("logit_bias");
  if (biases == nullptr) return;
  if (!biases->is_object()) return fields.fail("logit_bias", shown_json(*biases), "an object");
  if (biases->empty()) return;
  auto list = std::make_shared<std::vector<LogitBias>>();
  for (const auto& [name, value] : biases->items()) {
    TokenId id = -1;
    std::from_chars(name.data(), name.data() + name.size(), id);
    // An id has one spelling, so that none comes twice.
    if (!tokenizer.contains(id) || std::to_string(id) != name)
      return fields.fail("logit_bias", shown_json(name),
                         fmt::format("token ids 0..{}", tokenizer.size() - 1));
    if (!value.is_number() || std::abs(value.get<double>()) > 100)
      return fields.fail("logit_bias", shown_json(value), "numbers in -100..100");
    list->push_back({id, value.get<float>()});
  }
  options.logit_bias = std::move(list);
}

/// What completions and chats have in common, but for the number of tokens.
void read_common(JsonFields& fields, const ServedModel& served, AnswerRequest& request) {
  std::string user;
  read_model(fields, served);
  fields.text("user", user);  // a name for statistics; nothing here depends on it
  fields.integer("n", request.n, 1, kMostChoices);
  read_sampling(fields, request.options);
  read_stops(fields, request.options);
  read_logit_bias(fields, served.tokenizer(), request.options);
  fields.flag("stream", request.stream);
  fields.flag("logits_hash", request.logits_hash);
  fields.flag("receipt", request.receipt);
  if (request.stream && request.logits_hash)
    fields.fail("logits_hash", "true with stream", "an answer that is not streamed");
  if (request.stream && request.receipt)
    fields.fail("receipt", "true with stream", "an answer that is not streamed");
  if (const Json* options = fields.find("stream_options")) {
    if (!request.stream) fields.fail("stream_options", shown_json(*options), "stream as well");
    JsonFields inner(*options, "stream_options.");
    inner.flag("include_usage", request.include_usage);
    inner.only("include_obfuscation", Json::array({false}));
    const Status read = inner.finish();
    if (!read.ok()) fields.fail(read.error());
  }
  read_unsupported(fields);
}

std::int64_t most_new(const ServedModel& served) {
  return static_cast<std::int64_t>(served.most_new_tokens);
}

/// Asked before anything is made of the prompts.
Status check_choices(std::size_t n_prompts, std::size_t n, const ServedModel& served) {
  if (n_prompts * n <= served.most_texts) return Ok{};
  return wrong_field(n_prompts > served.most_texts ? "prompt" : "n",
                     fmt::format("{} texts to generate", n_prompts * n),
                     fmt::format("at most {}", served.most_texts));
}

/// What an answer takes memory for besides its texts, of all choices together: tokens of prompts;
/// log probabilities, and what it repeats of the request.
/// @param field  that asks for log probabilities
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
  if (request.receipt) n += n_prompt + request.prompts.size() * n_biases;
  n *= request.n;
  if (n <= kMostValues) return Ok{};
  return wrong_field(options.logprobs ? field
                     : request.echo   ? "echo"
                                      : "receipt",
                     fmt::format("{} values in all", n),
                     fmt::format("at most {}; lower max_tokens or n", kMostValues));
}

/// The longest prompt fits, with its new tokens. @param given  the number of tokens was asked for
Status check_lengths(AnswerRequest& request, const ServedModel& served, bool given,
                     const std::string& field) {
  std::size_t longest = 0;
  for (const Prompt& prompt : request.prompts) longest = std::max(longest, prompt.ids.size());
  if (longest > served.context) {
    Error error = wrong_field(field, fmt::format("{} tokens", longest),
                              fmt::format("at most {} (the context)", served.context));
    error.code = ErrorCode::kResource;
    return error;
  }
  const std::size_t room = served.context - longest + 1;  // the last token has no position
  std::size_t& wanted = *request.options.max_tokens;
  if (!given) wanted = std::min(wanted, room);
  if (wanted <= room) return Ok{};
  Error error =
      wrong_field("max_tokens", fmt::format("{} behind {} of the prompt", wanted, longest),
                  fmt::format("at most {} (the context has {})", room, served.context));
  error.code = ErrorCode::kResource;
  return error;
}

/// How long a gap's text may be, by the names of llama-server and OpenAI; and what clients of
/// llama-server send that changes nothing here.
void read_infill_fields(JsonFields& fields, const ServedModel& served,
                        std::optional<std::size_t>& max_tokens) {
  std::int64_t n_predict = -1;
  fields.integer("n_predict", n_predict, -1, most_new(served));
  if (n_predict >= 0) max_tokens = static_cast<std::size_t>(n_predict);
  fields.integer("max_tokens", max_tokens, 0, most_new(served));
  for (const char* taken : {"cache_prompt", "id_slot", "n_indent", "response_fields", "samplers",
                            "t_max_predict_ms", "t_max_prompt_ms"})
    fields.find(taken);
}

/// The files of /infill's input_extra.
Result<std::vector<Gap::File>> read_files(const Json& list) {
  if (!list.is_array()) return wrong_field("input_extra", shown_json(list), "an array of files");
  std::vector<Gap::File> files;
  for (std::size_t i = 0; i < list.size(); ++i) {
    JsonFields fields(list[i], fmt::format("input_extra[{}].", i));
    Gap::File& file = files.emplace_back();
    file.name = "file";
    fields.text("filename", file.name);
    fields.text("text", file.text);
    fields.find("time");  // of llama.vim, for itself
    LLM_RETURN_IF_ERROR(fields.finish());
  }
  return files;
}

}  // namespace

bool AnswerRequest::continues_text(std::size_t index) const {
  const Prompt& prompt = prompt_of(index);
  return !is_chat && (!prompt.text || !prompt.text->empty());
}

TextRequest AnswerRequest::choice(std::size_t index, const ServedModel& served) const {
  const Prompt& prompt = prompt_of(index);
  TextRequest request{.prompt = prompt.ids, .options = options};
  request.options.sequence = sequence_of(index);
  request.options.continues_text = continues_text(index);
  if (is_chat) add_reply_ends(*served.chat_format, served.tokenizer(), request.options);
  request.prompt_logprobs = echo && options.logprobs.has_value();
  request.hash_logits = logits_hash || receipt;
  return request;
}

Result<AnswerRequest> parse_completion(const Json& body, const ServedModel& served) {
  AnswerRequest request;
  JsonFields fields(body);
  read_common(fields, served, request);
  const Json* prompt = fields.find("prompt");
  fields.flag("echo", request.echo);
  fields.integer("logprobs", request.options.logprobs, 0, kMostLogprobs);
  if (request.echo && request.options.logprobs && request.stream)
    fields.fail("echo", "true with logprobs and stream", "an answer that is not streamed");
  std::optional<std::size_t> max_tokens;
  fields.integer("max_tokens", max_tokens, 0, most_new(served));
  PromptOptions options;
  fields.flag("parse_special", options.parse_special);
  request.parse_special = options.parse_special;
  fields.text("suffix", options.suffix);
  if (request.echo && !options.suffix.empty())
    fields.fail("echo", "true with suffix", "one of them");
  LLM_RETURN_IF_ERROR(fields.finish());
  LLM_RETURN_IF_ERROR(check_choices(count_prompts(prompt), request.n, served));
  LLM_TRY(request.prompts, read_prompts(prompt, served.tokenizer(), options));
  request.options.max_tokens =
      max_tokens.value_or(std::min(kUsualNewTokens, served.most_new_tokens));
  LLM_RETURN_IF_ERROR(check_lengths(request, served, max_tokens.has_value(), "prompt"));
  LLM_RETURN_IF_ERROR(check_cost(request, "logprobs"));
  return request;
}

Result<AnswerRequest> parse_infill(const Json& body, const ServedModel& served) {
  AnswerRequest request;
  request.is_infill = true;
  JsonFields fields(body);
  read_common(fields, served, request);
  if (request.n != 1) fields.fail("n", std::to_string(request.n), "1");
  if (request.receipt) fields.fail("receipt", "true", "a completion with a suffix");
  std::optional<std::size_t> max_tokens;
  read_infill_fields(fields, served, max_tokens);
  Gap gap;
  std::string more;
  fields.text("input_prefix", gap.before);
  fields.text("input_suffix", gap.behind);
  fields.text("prompt", more);  // what was written behind the prefix since
  fields.flag("parse_special", gap.parse_special);
  gap.before += more;
  const Json* files = fields.find("input_extra");
  LLM_RETURN_IF_ERROR(fields.finish());
  if (files != nullptr) {
    LLM_TRY(gap.files, read_files(*files));
  }
  const std::size_t wanted = max_tokens.value_or(std::min(kUsualFill, served.most_new_tokens));
  const std::size_t most = served.context - std::min(served.context, wanted);
  LLM_TRY(auto ids, fill_in_prompt(served.tokenizer(), gap, most, "input_prefix"));
  request.prompts.push_back({.ids = std::move(ids), .text = {}, .system = {}});
  request.options.max_tokens = max_tokens.value_or(served.most_new_tokens);
  LLM_RETURN_IF_ERROR(check_lengths(request, served, max_tokens.has_value(), "input_prefix"));
  return request;
}

Result<AnswerRequest> parse_chat(const Json& body, const ServedModel& served) {
  AnswerRequest request;
  request.is_chat = true;
  JsonFields fields(body);
  read_common(fields, served, request);
  const Json* messages = fields.find("messages");
  bool wants_logprobs = false;
  std::size_t top_logprobs = 0;
  fields.flag("logprobs", wants_logprobs);
  fields.integer("top_logprobs", top_logprobs, 0, kMostLogprobs);
  if (top_logprobs > 0 && !wants_logprobs)
    fields.fail("top_logprobs", std::to_string(top_logprobs), "logprobs as well");
  std::optional<std::size_t> max_tokens;
  fields.integer("max_tokens", max_tokens, 0, most_new(served));
  if (max_tokens && fields.find("max_completion_tokens") != nullptr)
    fields.fail("max_completion_tokens", "it with max_tokens", "one of them");
  fields.integer("max_completion_tokens", max_tokens, 0, most_new(served));
  LLM_RETURN_IF_ERROR(fields.finish());
  if (messages == nullptr) return wrong_field("messages", "nothing", "an array of messages");
  LLM_RETURN_IF_ERROR(check_choices(1, request.n, served));
  LLM_TRY(Prompt prompt, chat_prompt(*messages, served));
  request.prompts.push_back(std::move(prompt));
  if (wants_logprobs) request.options.logprobs = top_logprobs;
  request.options.max_tokens = max_tokens.value_or(served.most_new_tokens);
  LLM_RETURN_IF_ERROR(check_lengths(request, served, max_tokens.has_value(), "messages"));
  LLM_RETURN_IF_ERROR(check_cost(request, "top_logprobs"));
  return request;
}

}  // namespace llm
