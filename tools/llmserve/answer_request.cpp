#include "tools/llmserve/answer_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "engine/generate/conversation.h"

namespace llm {
namespace {

constexpr std::size_t kMostStops = 16;
constexpr std::size_t kMostStopBytes = 1024;
constexpr std::int64_t kMostLogprobs = 20;
constexpr std::int64_t kMostChoices = 128;
constexpr std::size_t kUsualNewTokens = 16;

Error wrong(std::string field, std::string found, std::string_view need) {
  return {.code = ErrorCode::kUsage,
          .field = std::move(field),
          .message = fmt::format("found {}, need {}", found, need)};
}

std::string at_index(std::string_view name, std::size_t index) {
  return fmt::format("{}[{}]", name, index);
}

/// What other servers offer and this one does not, with the values that ask for nothing.
void read_unsupported(JsonFields& fields) {
  const Json nothing = Json::array();
  fields.only("frequency_penalty", Json::array({0}));
  fields.only("presence_penalty", Json::array({0}));
  fields.only("best_of", Json::array({1}));
  fields.only("suffix", Json::array({""}));
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
  const Json list = stop->is_array() ? *stop : Json::array({*stop});
  if (list.size() > kMostStops)
    return fields.fail("stop", fmt::format("{} strings", list.size()),
                       fmt::format("at most {}", kMostStops));
  for (const Json& one : list) {
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
  for (const auto& [name, value] : biases->items()) {
    TokenId id = -1;
    const char* end = name.data() + name.size();
    const auto [stop, failure] = std::from_chars(name.data(), end, id);
    if (failure != std::errc() || stop != end || !tokenizer.contains(id))
      return fields.fail("logit_bias", shown_json(name),
                         fmt::format("token ids 0..{}", tokenizer.size() - 1));
    if (!value.is_number() || std::abs(value.get<double>()) > 100)
      return fields.fail("logit_bias", shown_json(value), "numbers in -100..100");
    options.logit_bias.push_back({id, value.get<float>()});
  }
}

/// What completions and chats have in common, but for the number of tokens.
void read_common(JsonFields& fields, const ServedModel& served, AnswerRequest& request) {
  std::string model = served.id;
  std::string user;
  fields.text("model", model);
  if (model != served.id) fields.fail("model", shown_json(model), shown_json(served.id));
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

/// The longest prompt fits, with its new tokens. @param given  the number of tokens was asked for
Status check_lengths(AnswerRequest& request, const ServedModel& served, bool given,
                     const std::string& field) {
  std::size_t longest = 0;
  for (const Prompt& prompt : request.prompts) longest = std::max(longest, prompt.ids.size());
  if (longest > served.context) {
    Error error = wrong(field, fmt::format("{} tokens", longest),
                        fmt::format("at most {} (the context)", served.context));
    error.code = ErrorCode::kResource;
    return error;
  }
  const std::size_t room = served.context - longest + 1;  // the last token has no position
  std::size_t& wanted = *request.options.max_tokens;
  if (!given) wanted = std::min(wanted, room);
  if (wanted <= room) return Ok{};
  Error error = wrong("max_tokens", fmt::format("{} behind {} of the prompt", wanted, longest),
                      fmt::format("at most {} (the context has {})", room, served.context));
  error.code = ErrorCode::kResource;
  return error;
}

Result<std::vector<Prompt>> read_prompts(const Json* prompt, const Tokenizer& tokenizer) {
  constexpr std::string_view kNeed = "a string, an array of token ids, or an array of either";
  if (prompt == nullptr) return wrong("prompt", "nothing", kNeed);
  std::vector<Prompt> prompts;
  const auto read = [&](const Json& one, const std::string& path) -> Status {
    Prompt& next = prompts.emplace_back();
    if (one.is_string()) {
      next.text = one.get<std::string>();
      next.ids = prompt_ids(tokenizer, *next.text, true);
    } else if (one.is_array()) {
      LLM_TRY(next.ids, ids_of(one, tokenizer, path));
    } else {
      return wrong(path, shown_json(one), kNeed);
    }
    if (!next.ids.empty()) return Ok{};
    return wrong(path, "no token", "at least one (the vocabulary may have no BOS to start from)");
  };
  const bool is_one = !prompt->is_array() || prompt->empty() || prompt->front().is_number();
  if (is_one) {
    LLM_RETURN_IF_ERROR(read(*prompt, "prompt"));
    return prompts;
  }
  for (std::size_t i = 0; i < prompt->size(); ++i) {
    LLM_RETURN_IF_ERROR(read((*prompt)[i], at_index("prompt", i)));
  }
  return prompts;
}

/// A string, or parts of type text.
Result<std::string> content_of(const Json* content, const std::string& path) {
  constexpr std::string_view kNeed = "a string, or an array of parts of type text";
  if (content == nullptr) return wrong(path, "nothing", kNeed);
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) return wrong(path, shown_json(*content), kNeed);
  std::string text;
  for (std::size_t i = 0; i < content->size(); ++i) {
    JsonFields part((*content)[i], at_index(path, i) + ".");
    std::string type;
    std::string piece;
    part.text("type", type);
    if (part.ok() && type != "text") part.fail("type", shown_json(type), "\"text\"");
    part.text("text", piece);
    LLM_RETURN_IF_ERROR(part.finish());
    text += piece;
  }
  return text;
}

Result<ChatMessage> read_message(const Json& message, std::size_t index, std::size_t n) {
  const std::string path = at_index("messages", index);
  JsonFields fields(message, path + ".");
  std::string role;
  std::string name;
  fields.text("role", role);
  fields.only("name", Json::array());
  fields.only("tool_calls", Json::array({Json::array()}));
  fields.only("refusal", Json::array());
  const Json* content = fields.find("content");
  LLM_RETURN_IF_ERROR(fields.finish());
  LLM_TRY(std::string text, content_of(content, path + ".content"));
  const bool is_system = role == "system" || role == "developer";
  const bool is_last = index + 1 == n;
  if (is_system && index == 0 && !is_last)
    return ChatMessage{ChatMessage::Role::kSystem, std::move(text)};
  if (role == "user") return ChatMessage{ChatMessage::Role::kUser, std::move(text)};
  if (role == "assistant" && !is_last)
    return ChatMessage{ChatMessage::Role::kAssistant, std::move(text)};
  return wrong(path + ".role", shown_json(role),
               is_last ? "user: a reply is asked for"
                       : "user or assistant; system or developer for the first message");
}

}  // namespace

TextRequest AnswerRequest::choice(std::size_t index, const ServedModel& served) const {
  const Prompt& prompt = prompt_of(index);
  TextRequest request{.prompt = prompt.ids, .options = options};
  request.options.sequence = sequence_of(index);
  request.options.continues_text = !is_chat && (!prompt.text || !prompt.text->empty());
  if (is_chat) add_reply_ends(*served.chat_format, served.tokenizer(), request.options);
  request.prompt_logprobs = echo && options.logprobs.has_value();
  request.hash_logits = logits_hash || receipt;
  return request;
}

std::vector<TokenId> prompt_ids(const Tokenizer& tokenizer, const std::string& text,
                                bool add_special) {
  EncodeOptions encoding;
  encoding.add_eos = false;
  if (!add_special) encoding.add_bos = false;
  return tokenizer.encode(text, encoding);
}

Result<std::vector<TokenId>> ids_of(const Json& array, const Tokenizer& tokenizer,
                                    const std::string& path) {
  std::vector<TokenId> ids;
  ids.reserve(array.size());
  for (std::size_t i = 0; i < array.size(); ++i) {
    const Json& id = array[i];
    const bool fits = id.is_number_unsigned() && id.get<std::uint64_t>() < tokenizer.size();
    if (!fits) {
      return wrong(at_index(path, i), shown_json(id),
                   fmt::format("a token id 0..{}", tokenizer.size() - 1));
    }
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

Result<Prompt> chat_prompt(const Json& messages, const ServedModel& served) {
  if (!served.chat_format) {
    return Error{.code = ErrorCode::kUsage,
                 .field = "messages",
                 .message = "found a model without a known chat template, need one",
                 .hint = "start llmserve with --chat-template"};
  }
  if (!messages.is_array() || messages.empty())
    return wrong("messages", shown_json(messages), "an array of messages");
  std::vector<ChatMessage> conversation;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    LLM_TRY(ChatMessage message, read_message(messages[i], i, messages.size()));
    conversation.push_back(std::move(message));
  }
  Prompt prompt;
  const auto parts = format_chat(*served.chat_format, conversation);
  LLM_TRY(prompt.ids, encode_chat(served.tokenizer(), parts, true));
  // One question, as llmrun takes it, can be told as texts.
  const bool has_system = conversation.front().role == ChatMessage::Role::kSystem;
  if (has_system) prompt.system = conversation.front().content;
  if (conversation.size() == (has_system ? 2 : 1) && has_system != prompt.system.empty())
    prompt.text = conversation.back().content;
  return prompt;
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
  LLM_RETURN_IF_ERROR(fields.finish());
  LLM_TRY(request.prompts, read_prompts(prompt, served.tokenizer()));
  request.options.max_tokens =
      max_tokens.value_or(std::min(kUsualNewTokens, served.most_new_tokens));
  LLM_RETURN_IF_ERROR(check_lengths(request, served, max_tokens.has_value(), "prompt"));
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
  if (messages == nullptr) return wrong("messages", "nothing", "an array of messages");
  LLM_TRY(Prompt prompt, chat_prompt(*messages, served));
  request.prompts.push_back(std::move(prompt));
  if (wants_logprobs) request.options.logprobs = top_logprobs;
  request.options.max_tokens = max_tokens.value_or(served.most_new_tokens);
  LLM_RETURN_IF_ERROR(check_lengths(request, served, max_tokens.has_value(), "messages"));
  return request;
}

}  // namespace llm
