#include "tools/llmserve/api/answer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <random>
#include <utility>

#include "base/json.h"
#include "base/sha256.h"
#include "base/utf8.h"
#include "quant/numerics/contract.h"
#include "tools/llmserve/api/answer_request.h"
#include "tools/llmserve/conversations/conversation_parts.h"

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

std::string random_digits() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}", random(), random(), random());
}

}  // namespace

std::string system_fingerprint(const ServedModel& served, std::span<const float> adapters) {
  std::string used;
  for (std::size_t i = 0; i < adapters.size(); ++i)
    if (adapters[i] != 0)
      used += fmt::format("{} {:a} ", served.model->adapters()[i]->file_sha256(), adapters[i]);
  if (!used.empty()) used = "-" + sha256_hex(std::as_bytes(std::span(used))).substr(0, 12);
  return fmt::format(
      "llm-{}-{}-{}-{}{}", contract::kContractVersion, served.model->file_sha256().substr(0, 12),
      served.model->compute() == Compute::kInt8 ? "int8" : "f32", kv_name(served.kv), used);
}

std::string error_body(std::string_view message, std::string_view type, std::string_view param,
                       std::string_view code) {
  const auto or_null = [](std::string_view text) {
    return text.empty() ? AnswerJson() : AnswerJson(text);
  };
  // "type" is Anthropic's, whose clients ask for it.
  return json_text(AnswerJson{{"type", "error"},
                              {"error",
                               {{"message", message},
                                {"type", type},
                                {"param", or_null(param)},
                                {"code", or_null(code)}}}});
}

LogprobsJson::LogprobsJson(const Tokenizer& tokenizer, Shape shape, bool continues_text)
    : tokenizer_(&tokenizer),
      shape_(shape),
      decoder_(tokenizer, {.continues_text = continues_text}) {
  take();
}

AnswerJson LogprobsJson::take() {
  AnswerJson empty = {{"content", AnswerJson::array()}};
  if (shape_ == Shape::kCompletion) {
    empty = {{"tokens", AnswerJson::array()},
             {"token_logprobs", AnswerJson::array()},
             {"top_logprobs", AnswerJson::array()},
             {"text_offset", AnswerJson::array()}};
  }
  return std::exchange(json_, std::move(empty));
}

void LogprobsJson::add(TokenId id, const Logprobs* logprobs) {
  if (shape_ == Shape::kCompletion) return add_completion(id, logprobs);
  AnswerJson token = chat_token(logprobs->chosen);
  token["top_logprobs"] = AnswerJson::array();
  for (const TokenLogprob& one : logprobs->top) token["top_logprobs"].push_back(chat_token(one));
  json_["content"].push_back(std::move(token));
}

void LogprobsJson::add_end(const std::optional<Logprobs>& logprobs) {
  if (shape_ == Shape::kCompletion && logprobs) add_completion(logprobs->chosen.id, &*logprobs);
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
  AnswerJson json = AnswerJson::object();
  if (shape_ == Shape::kLlama) json["id"] = token.id;
  json.update({{"token", bytes}, {"logprob", token.logprob}, {"bytes", std::move(values)}});
  return json;
}

std::string server_event(const AnswerJson& json, std::string_view name) {
  const std::string event = name.empty() ? "" : fmt::format("event: {}\n", name);
  return event + "data: " + json_text(json) + "\n\n";
}

AnswerWriter::AnswerWriter(const ServedModel& served, const AnswerRequest& request,
                           std::string_view id)
    : served_(served),
      request_(request),
      digits_(random_digits()),
      id_(fmt::format("{}{}", id, digits_)),
      created_(std::time(nullptr)) {
  if (!request.stream || !request.is_chat) return;
  for (std::size_t i = 0; i < request.n_choices(); ++i) parsers_.push_back(request.reply_parser());
}

std::size_t AnswerWriter::prompt_tokens() const {
  std::size_t n = 0;
  for (const Prompt& prompt : request_.prompts) n += prompt.ids.size();
  return n;
}

std::vector<ReplyPart> AnswerWriter::parts_of(const GenerationOutput& text,
                                              UnfinishedCall of_cut) const {
  ReplyParser parser = request_.reply_parser();
  std::vector<ReplyPart> parts = parser.push(text.result.text);
  std::ranges::move(parser.finish(is_cut(text)), std::back_inserter(parts));
  return whole_parts(std::move(parts), is_cut(text) ? of_cut : UnfinishedCall::kContent);
}

bool AnswerWriter::is_cut(const GenerationOutput& text) {
  const StopReason reason = text.result.stop_reason;
  return reason != StopReason::kEos && reason != StopReason::kStopString;
}

std::string AnswerWriter::call_id(std::size_t n) const {
  return fmt::format("{}{:03}", digits_.substr(0, 6), n % 1000);
}

const ToolOrigin* AnswerWriter::origin_of(const FunctionCall& call) const {
  const auto at = request_.reply.origins.find(call.name);
  return at == request_.reply.origins.end() ? nullptr : &at->second;
}

std::string input_text(const FunctionCall& call) {
  const OrderedJson arguments = parse_ordered_json(call.arguments);
  const OrderedJson input =
      arguments.is_object() ? arguments.value(kTextArgument, OrderedJson()) : OrderedJson();
  // A model that gives something else is not to lose it.
  return input.is_string() ? input.get<std::string>() : call.arguments;
}

std::string AnswerWriter::failure(std::string_view error_body) const {
  return fmt::format("data: {}\n\n", error_body);
}

std::size_t AnswerWriter::size_of(std::span<const GenerationOutput> texts) const {
  constexpr std::size_t kTokenBytes = 40;  // with its spelling and log probability
  constexpr std::size_t kValueBytes = 20;
  const std::size_t each = kTokenBytes * (request_.options.logprobs.value_or(0) + 1);
  std::size_t n_tokens = request_.echo || request_.receipt ? prompt_tokens() * request_.n : 0;
  std::size_t n_values = 0;
  for (const GenerationOutput& text : texts) {
    n_tokens += text.result.ids.size();
    n_values += text.embedding.size();
  }
  return n_tokens * each + n_values * kValueBytes;
}

}  // namespace llm
