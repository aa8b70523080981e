#include "tools/llmserve/answer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <random>
#include <utility>

#include "base/json.h"
#include "base/utf8.h"
#include "quant/contract/contract.h"
#include "tools/llmserve/answer_request.h"

namespace llm {
namespace {

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

/// A token's bytes as OpenAI spells them: "bytes:\xe2\x80" for those that are no text.
std::string token_text(const Tokenizer& tokenizer, TokenId id) {
  const std::string bytes = tokenizer.piece_text(id, true);
  if (is_valid_utf8(bytes)) return bytes;
  std::string text = "bytes:";
  for (const char byte : bytes) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return text;
}

std::string_view finish_reason(StopReason reason) {
  return reason == StopReason::kEos || reason == StopReason::kStopString ? "stop" : "length";
}

std::string server_event(const AnswerJson& json) { return "data: " + dump(json) + "\n\n"; }

std::string new_id(bool is_chat) {
  std::random_device random;
  return fmt::format("{}-{:08x}{:08x}{:08x}", is_chat ? "chatcmpl" : "cmpl", random(), random(),
                     random());
}

}  // namespace

std::string system_fingerprint(const ServedModel& served) {
  return fmt::format(
      "llm-{}-{}-{}-{}", contract::kContractVersion, served.model->file_sha256().substr(0, 12),
      served.model->compute() == Compute::kInt8 ? "int8" : "f32", kv_name(served.kv));
}

std::string dump(const AnswerJson& json) { return json_text(json); }

std::string error_body(std::string_view message, std::string_view type, std::string_view param,
                       std::string_view code) {
  const auto or_null = [](std::string_view text) {
    return text.empty() ? AnswerJson() : AnswerJson(text);
  };
  return dump({{"error",
                {{"message", message},
                 {"type", type},
                 {"param", or_null(param)},
                 {"code", or_null(code)}}}});
}

LogprobsJson::LogprobsJson(const Tokenizer& tokenizer, bool is_chat, bool continues_text)
    : tokenizer_(&tokenizer),
      is_chat_(is_chat),
      decoder_(tokenizer, {.continues_text = continues_text}) {
  take();
}

AnswerJson LogprobsJson::take() {
  AnswerJson empty = {{"content", AnswerJson::array()}};
  if (!is_chat_) {
    empty = {{"tokens", AnswerJson::array()},
             {"token_logprobs", AnswerJson::array()},
             {"top_logprobs", AnswerJson::array()},
             {"text_offset", AnswerJson::array()}};
  }
  return std::exchange(json_, std::move(empty));
}

void LogprobsJson::add(TokenId id, const Logprobs* logprobs) {
  if (!is_chat_) return add_completion(id, logprobs);
  AnswerJson token = chat_token(logprobs->chosen);
  token["top_logprobs"] = AnswerJson::array();
  for (const TokenLogprob& one : logprobs->top) token["top_logprobs"].push_back(chat_token(one));
  json_["content"].push_back(std::move(token));
}

void LogprobsJson::add_end(const std::optional<Logprobs>& logprobs) {
  if (!is_chat_ && logprobs) add_completion(logprobs->chosen.id, &*logprobs);
}

void LogprobsJson::add_completion(TokenId id, const Logprobs* logprobs) {
  json_["tokens"].push_back(token_text(*tokenizer_, id));
  json_["text_offset"].push_back(offset_);
  offset_ += count_characters(decoder_.push(id));
  if (logprobs == nullptr) {
    json_["token_logprobs"].push_back(nullptr);
    json_["top_logprobs"].push_back(nullptr);
    return;
  }
  json_["token_logprobs"].push_back(logprobs->chosen.logprob);
  AnswerJson top = AnswerJson::object();
  const auto add = [&](const TokenLogprob& token) {
    top.emplace(token_text(*tokenizer_, token.id), token.logprob);  // of equal texts the likelier
  };
  for (const TokenLogprob& token : logprobs->top) add(token);
  add(logprobs->chosen);
  json_["top_logprobs"].push_back(std::move(top));
}

AnswerJson LogprobsJson::chat_token(const TokenLogprob& token) const {
  const std::string bytes = tokenizer_->piece_text(token.id, true);
  AnswerJson values = AnswerJson::array();
  for (const char byte : bytes) values.push_back(static_cast<unsigned char>(byte));
  return {{"token", bytes}, {"logprob", token.logprob}, {"bytes", std::move(values)}};
}

AnswerWriter::AnswerWriter(const ServedModel& served, const AnswerRequest& request)
    : served_(served),
      request_(request),
      id_(new_id(request.is_chat)),
      created_(std::time(nullptr)) {
  if (!request.stream || !request.options.logprobs) return;
  for (std::size_t i = 0; i < request.n_choices(); ++i) {
    logprobs_.emplace_back(served.tokenizer(), request.is_chat, request.continues_text(i));
  }
}

AnswerJson AnswerWriter::envelope(std::string_view object) const {
  return {{"id", id_},
          {"object", object},
          {"created", created_},
          {"model", served_.id()},
          {"system_fingerprint", system_fingerprint(served_)}};
}

std::size_t AnswerWriter::prompt_tokens() const {
  std::size_t n = 0;
  for (const Prompt& prompt : request_.prompts) n += prompt.ids.size();
  return n;
}

AnswerJson AnswerWriter::usage(std::size_t completion_tokens) const {
  return {{"prompt_tokens", prompt_tokens()},
          {"completion_tokens", completion_tokens},
          {"total_tokens", prompt_tokens() + completion_tokens}};
}

AnswerJson AnswerWriter::choice(std::size_t index, const ServedText& text) const {
  const GenerateResult& result = text.result;
  const Prompt& prompt = request_.prompt_of(index);
  AnswerJson logprobs;
  if (request_.options.logprobs) {
    LogprobsJson writer(served_.tokenizer(), request_.is_chat,
                        !request_.echo && request_.continues_text(index));
    for (std::size_t i = 0; request_.echo && i < prompt.ids.size(); ++i)
      writer.add(prompt.ids[i], i == 0 ? nullptr : &text.prompt_logprobs[i - 1]);
    for (std::size_t i = 0; i < result.ids.size(); ++i)
      writer.add(result.ids[i], &result.logprobs[i]);
    writer.add_end(text.end_logprobs);
    logprobs = writer.take();
  }
  AnswerJson json = {{"index", index}};
  if (request_.is_chat) {
    json["message"] = {{"role", "assistant"}, {"content", result.text}, {"refusal", nullptr}};
  } else {
    const std::string echo = request_.echo ? served_.tokenizer().decode(prompt.ids) : "";
    json["text"] = echo + result.text;
  }
  json["logprobs"] = std::move(logprobs);
  json["finish_reason"] = finish_reason(result.stop_reason);
  if (request_.receipt)
    json["receipt"] = parse_ordered_json(receipt_json(receipt_of(served_, request_, index, text)));
  return json;
}

AnswerJson AnswerWriter::infill(std::size_t index, std::string_view piece,
                                const ServedText* text) const {
  AnswerJson json = {{"index", index}, {"content", piece}, {"stop", text != nullptr}};
  if (text == nullptr) return json;
  const StopReason reason = text->result.stop_reason;
  json.update({{"id", id_},
               {"model", served_.id()},
               {"system_fingerprint", system_fingerprint(served_)},
               {"tokens_evaluated", prompt_tokens()},
               {"tokens_predicted", text->result.ids.size()},
               {"stop_type", reason == StopReason::kEos          ? "eos"
                             : reason == StopReason::kStopString ? "word"
                                                                 : "limit"},
               {"truncated", false}});
  return json;
}

std::string AnswerWriter::whole(std::span<const ServedText> texts) const {
  if (request_.is_infill) return dump(infill(0, texts[0].result.text, &texts[0])) + "\n";
  AnswerJson json = envelope(request_.is_chat ? "chat.completion" : "text_completion");
  json["choices"] = AnswerJson::array();
  std::size_t n_tokens = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    json["choices"].push_back(choice(i, texts[i]));
    n_tokens += texts[i].result.ids.size();
  }
  json["usage"] = usage(n_tokens);
  return dump(json) + "\n";
}

std::size_t AnswerWriter::size_of(std::span<const ServedText> texts) const {
  constexpr std::size_t kTokenBytes = 40;  // with its spelling and log probability
  const std::size_t each = kTokenBytes * (request_.options.logprobs.value_or(0) + 1);
  std::size_t n_tokens = request_.echo || request_.receipt ? prompt_tokens() * request_.n : 0;
  for (const ServedText& text : texts) n_tokens += text.result.ids.size();
  return n_tokens * each;
}

std::string AnswerWriter::chunk(AnswerJson choices) const {
  AnswerJson json = envelope(request_.is_chat ? "chat.completion.chunk" : "text_completion");
  json["choices"] = std::move(choices);
  if (request_.include_usage) json["usage"] = nullptr;
  return server_event(json);
}

std::string AnswerWriter::chunk_of(std::size_t index, AnswerJson content, AnswerJson logprobs,
                                   AnswerJson reason) const {
  return chunk(AnswerJson::array({{{"index", index},
                                   {request_.is_chat ? "delta" : "text", std::move(content)},
                                   {"logprobs", std::move(logprobs)},
                                   {"finish_reason", std::move(reason)}}}));
}

std::string AnswerWriter::opening() {
  std::string events;
  for (std::size_t i = 0; i < request_.n_choices(); ++i) {
    if (request_.is_chat) {
      events += chunk_of(i, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
    } else if (request_.echo) {
      events +=
          chunk_of(i, served_.tokenizer().decode(request_.prompt_of(i).ids), nullptr, nullptr);
    }
  }
  return events;
}

std::string AnswerWriter::growth(std::size_t index, const TextEvent& event) {
  AnswerJson logprobs;
  if (event.id && event.logprobs) {
    logprobs_[index].add(*event.id, &*event.logprobs);
    logprobs = logprobs_[index].take();
  }
  if (event.text.empty() && logprobs.is_null()) return "";
  if (request_.is_infill) return server_event(infill(index, event.text, nullptr));
  AnswerJson content = event.text;
  if (request_.is_chat) content = {{"content", event.text}};
  return chunk_of(index, std::move(content), std::move(logprobs), nullptr);
}

std::string AnswerWriter::closing(std::size_t index, const ServedText& text) {
  completion_tokens_ += text.result.ids.size();
  if (request_.is_infill) return server_event(infill(index, "", &text));
  AnswerJson content = "";
  AnswerJson logprobs;
  if (request_.is_chat) {
    content = AnswerJson::object();
  } else if (text.end_logprobs) {
    logprobs_[index].add_end(text.end_logprobs);
    logprobs = logprobs_[index].take();
  }
  return chunk_of(index, std::move(content), std::move(logprobs),
                  finish_reason(text.result.stop_reason));
}

std::string AnswerWriter::ending() const {
  if (request_.is_infill) return "";
  std::string events;
  if (request_.include_usage) {
    AnswerJson json = envelope(request_.is_chat ? "chat.completion.chunk" : "text_completion");
    json["choices"] = AnswerJson::array();
    json["usage"] = usage(completion_tokens_);
    events = server_event(json);
  }
  return events + "data: [DONE]\n\n";
}

std::string AnswerWriter::failure(std::string_view error_body) {
  return fmt::format("data: {}\n\n", error_body);
}

}  // namespace llm
