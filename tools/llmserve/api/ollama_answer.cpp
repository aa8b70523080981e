// The shape of Ollama's /api/chat and /api/generate: lines of JSON. Source: Ollama's docs/api.md.

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "tools/llmserve/api/answer_json.h"
#include "tools/llmserve/api/answer_request.h"

namespace llm {
namespace {

class OllamaWriter : public AnswerWriter {
 public:
  OllamaWriter(const ServedModel& served, const AnswerRequest& request, bool is_message)
      : AnswerWriter(served, request, ""), is_message_(is_message) {}

  const char* stream_type() const override { return "application/x-ndjson"; }

  std::string whole(std::span<const GenerationOutput> texts) const override {
    AnswerJson reply = empty_reply();
    if (!request_.is_chat)
      reply["response"] = texts[0].result.text;
    else
      for (const ReplyPart& part : parts_of(texts[0], UnfinishedCall::kLeftOut)) add(part, reply);
    AnswerJson json = line(std::move(reply));
    AnswerJson logprobs = AnswerJson::array();
    for (std::size_t i = 0; i < texts[0].result.logprobs.size(); ++i)
      logprobs.push_back(logprobs_of(texts[0].result.ids[i], texts[0].result.logprobs[i])[0]);
    if (request_.options.logprobs) json["logprobs"] = std::move(logprobs);
    json.update(ended(texts[0]));
    return json_text(json) + "\n";
  }

  std::string growth(std::size_t, const TextEvent& event) override {
    std::vector<AnswerJson> replies;
    if (request_.is_chat)
      replies = replies_of(parsers_[0].push(event.text));
    else if (!event.text.empty())
      replies.push_back({{"response", event.text}});
    if (!event.id || !event.logprobs) return lines_of(std::move(replies));
    if (replies.empty()) replies.push_back(empty_reply());
    AnswerJson first = line(std::move(replies.front()));
    replies.erase(replies.begin());
    first["logprobs"] = logprobs_of(*event.id, *event.logprobs);
    return json_text(first) + "\n" + lines_of(std::move(replies));
  }

  std::string closing(std::size_t, const GenerationOutput& text) override {
    const auto of_cut = is_cut(text) ? UnfinishedCall::kLeftOut : UnfinishedCall::kContent;
    std::string lines =
        request_.is_chat ? lines_of(replies_of(parsers_[0].finish(is_cut(text)), of_cut)) : "";
    AnswerJson last = line(empty_reply());
    last.update(ended(text));
    return lines + json_text(last) + "\n";
  }

  std::string failure(std::string_view error_body) const override {
    return json_text(AnswerJson{{"error", parse_ordered_json(error_body)["error"]["message"]}}) +
           "\n";
  }

 private:
  AnswerJson empty_reply() const {
    if (!is_message_) return {{"response", ""}};
    return {{"role", "assistant"}, {"content", ""}};
  }

  void add(const ReplyPart& part, AnswerJson& reply) const {
    const auto append = [&](const char* member) {
      AnswerJson& text = reply[member];
      text = (text.is_null() ? "" : text.get<std::string>()) + part.text;
    };
    if (part.kind == ReplyPart::Kind::kContent) return append(is_message_ ? "content" : "response");
    if (part.kind == ReplyPart::Kind::kThought) return append("thinking");
    reply["tool_calls"].push_back(
        {{"function",
          {{"name", part.call.name}, {"arguments", parse_ordered_json(part.call.arguments)}}}});
  }

  AnswerJson line(AnswerJson reply) const {
    AnswerJson json = ollama_envelope(served_);
    if (is_message_)
      json["message"] = std::move(reply);
    else
      json.update(reply);
    json["done"] = false;
    return json;
  }

  AnswerJson ended(const GenerationOutput& text) const {
    const StopReason reason = text.result.stop_reason;
    const bool is_whole = reason == StopReason::kEos || reason == StopReason::kStopString;
    const auto since = std::chrono::steady_clock::now() - started_;
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
    return {{"done", true},
            {"done_reason", is_whole ? "stop" : "length"},
            {"total_duration", ns},
            {"load_duration", 0},
            {"prompt_eval_count", prompt_tokens()},
            {"eval_count", text.result.ids.size()}};
  }

  /// A call has its arguments as an object: it comes when it is whole.
  std::vector<AnswerJson> replies_of(const std::vector<ReplyPart>& parts,
                                     UnfinishedCall unfinished = UnfinishedCall::kContent) const {
    std::vector<AnswerJson> replies;
    for (const ReplyPart& part : whole_parts(parts, unfinished)) {
      replies.push_back(empty_reply());
      add(part, replies.back());
    }
    return replies;
  }

  std::string lines_of(std::vector<AnswerJson> replies) const {
    std::string lines;
    for (AnswerJson& reply : replies) lines += json_text(line(std::move(reply))) + "\n";
    return lines;
  }

  /// Of a token, as a list.
  AnswerJson logprobs_of(TokenId id, const Logprobs& logprobs) const {
    LogprobsJson json(served_.tokenizer(), LogprobsJson::Shape::kChat, false);
    json.add(id, &logprobs);
    return json.take()["content"];
  }

  bool is_message_;  ///< a reply is one, else a text
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

}  // namespace

AnswerJson ollama_details(const ServedModel& served) {
  const std::string family(served.model->config().architecture->name);
  return {{"parent_model", ""},   {"format", "gguf"},
          {"family", family},     {"families", AnswerJson::array({family})},
          {"parameter_size", ""}, {"quantization_level", ""}};
}

AnswerJson ollama_envelope(const ServedModel& served) {
  const auto now = std::chrono::system_clock::now();
  return {{"model", served.id},
          {"created_at", fmt::format("{:%Y-%m-%dT%H:%M:%S}Z", fmt::gmtime(now))}};
}

std::unique_ptr<AnswerWriter> ollama_chat_writer(const ServedModel& served,
                                                 const AnswerRequest& request) {
  return std::make_unique<OllamaWriter>(served, request, /*is_message=*/true);
}

std::unique_ptr<AnswerWriter> ollama_text_writer(const ServedModel& served,
                                                 const AnswerRequest& request) {
  return std::make_unique<OllamaWriter>(served, request, /*is_message=*/false);
}

}  // namespace llm
