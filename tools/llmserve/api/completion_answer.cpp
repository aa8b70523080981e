// The shapes of /v1/completions, /v1/chat/completions and /infill.

#include <utility>

#include "tools/llmserve/api/answer_json.h"
#include "tools/llmserve/api/answer_request.h"

namespace llm {
namespace {

std::string_view finish_reason(StopReason reason, bool has_calls) {
  if (reason != StopReason::kEos && reason != StopReason::kStopString) return "length";
  return has_calls ? "tool_calls" : "stop";
}

/// llama-server's: of the prompt what was evaluated, and times in milliseconds. The time of the
/// prompt includes the queue's.
AnswerJson timings_of(const GenerationOutput& text, std::size_t n_prompt) {
  const GenerateResult& result = text.result;
  double decode = 0;
  for (const double seconds : result.token_seconds) decode += seconds;
  AnswerJson json = {{"cache_n", text.cached_tokens}};
  const auto add = [&json](const std::string& what, std::size_t n, double seconds) {
    json[what + "_n"] = n;
    json[what + "_ms"] = seconds * 1e3;
    json[what + "_per_token_ms"] = n == 0 ? 0 : seconds * 1e3 / static_cast<double>(n);
    json[what + "_per_second"] = seconds <= 0 ? 0 : static_cast<double>(n) / seconds;
  };
  add("prompt", n_prompt - text.cached_tokens, result.first_token_seconds);
  add("predicted", result.ids.size(), decode);
  return json;
}

class CompletionWriter : public AnswerWriter {
 public:
  /// @param is_llama  the answer has the members of llama-server's own endpoints
  CompletionWriter(const ServedModel& served, const AnswerRequest& request, bool is_llama)
      : AnswerWriter(served, request, request.is_chat ? "chatcmpl-" : "cmpl-"),
        is_llama_(is_llama) {
    if (!request.stream) return;
    n_calls_.resize(request.n_choices());
    takes_text_.resize(request.n_choices());
    for (std::size_t i = 0; i < request.n_choices() && request.options.logprobs; ++i)
      logprobs_.emplace_back(served.tokenizer(), shape(), request.continues_text(i));
  }

  std::string whole(std::span<const GenerationOutput> texts) const override {
    if (is_llama_)
      return json_text(infill(0, texts[0].result.text, &texts[0], all_logprobs(0, texts[0]))) +
             "\n";
    AnswerJson json = envelope("");
    json["choices"] = AnswerJson::array();
    std::size_t n_tokens = 0;
    std::size_t n_cached = 0;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      json["choices"].push_back(choice(i, texts[i]));
      n_tokens += texts[i].result.ids.size();
      if (i % request_.n == 0) n_cached += texts[i].cached_tokens;
    }
    json["usage"] = usage(n_tokens, n_cached);
    if (request_.timings) json["timings"] = timings_of(texts[0], request_.prompts[0].ids.size());
    return json_text(json) + "\n";
  }

  std::string opening() override {
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

  std::string growth(std::size_t index, const TextEvent& event) override {
    AnswerJson logprobs;
    if (event.id && event.logprobs) {
      logprobs_[index].add(*event.id, &*event.logprobs);
      logprobs = logprobs_[index].take();
    }
    if (event.text.empty() && logprobs.is_null()) return "";
    if (is_llama_) return server_event(infill(index, event.text, nullptr, std::move(logprobs)));
    if (!request_.is_chat) return chunk_of(index, event.text, std::move(logprobs), nullptr);
    return deltas(index, parsers_[index].push(event.text), std::move(logprobs));
  }

  /// llama-server's: a piece of nothing, with how far the prompt is.
  std::string progress(std::size_t index, const PromptProgress& progress) override {
    AnswerJson piece = "";
    if (request_.is_chat) piece = {{"role", "assistant"}, {"content", nullptr}};
    AnswerJson json = is_llama_ ? infill(index, "", nullptr, nullptr)
                                : chunk(index, std::move(piece), nullptr, nullptr);
    json["prompt_progress"] = {{"total", progress.n_tokens},
                               {"cache", progress.n_cached},
                               {"processed", progress.n_stored},
                               {"time_ms", progress.seconds * 1e3}};
    return server_event(json);
  }

  std::string closing(std::size_t index, const GenerationOutput& text) override {
    completion_tokens_ += text.result.ids.size();
    if (index % request_.n == 0) cached_tokens_ += text.cached_tokens;
    if (index == 0 && request_.timings) timings_ = timings_of(text, request_.prompts[0].ids.size());
    if (is_llama_) return server_event(infill(index, "", &text, nullptr));
    std::string events;
    AnswerJson content = "";
    AnswerJson logprobs;
    if (request_.is_chat) {
      events = deltas(index, parsers_[index].finish(is_cut(text)), nullptr);
      content = AnswerJson::object();
    } else if (text.end_logprobs) {
      logprobs_[index].add_end(text.end_logprobs);
      logprobs = logprobs_[index].take();
    }
    const bool has_calls = n_calls_[index] > 0;
    return events + chunk_of(index, std::move(content), std::move(logprobs),
                             finish_reason(text.result.stop_reason, has_calls));
  }

  std::string ending() override {
    if (is_llama_) return "";
    std::string events;
    if (request_.include_usage) {
      AnswerJson json = envelope(".chunk");
      json["choices"] = AnswerJson::array();
      json["usage"] = usage(completion_tokens_, cached_tokens_);
      if (!timings_.is_null()) json["timings"] = timings_;
      events = server_event(json);
    }
    if (!timings_.is_null() && !request_.include_usage) {
      AnswerJson json = envelope(".chunk");
      json["choices"] = AnswerJson::array();
      json["timings"] = timings_;
      events = server_event(json);
    }
    return events + "data: [DONE]\n\n";
  }

 private:
  LogprobsJson::Shape shape() const {
    using Shape = LogprobsJson::Shape;
    if (is_llama_) return Shape::kLlama;
    return request_.is_chat ? Shape::kChat : Shape::kCompletion;
  }

  AnswerJson envelope(std::string_view chunk) const {
    const std::string chat = "chat.completion" + std::string(chunk);
    return {{"id", id_},
            {"object", request_.is_chat ? chat : "text_completion"},
            {"created", created_},
            {"model", served_.id},
            {"system_fingerprint", system_fingerprint(served_, request_.adapters)}};
  }

  AnswerJson usage(std::size_t completion_tokens, std::size_t cached_tokens) const {
    return {{"prompt_tokens", prompt_tokens()},
            {"completion_tokens", completion_tokens},
            {"total_tokens", prompt_tokens() + completion_tokens},
            {"prompt_tokens_details", {{"cached_tokens", cached_tokens}}}};
  }

  AnswerJson call_json(const FunctionCall& call, std::size_t number) const {
    const ToolOrigin* origin = origin_of(call);
    if (origin != nullptr && origin->takes_text)
      return {{"id", call_id(number)},
              {"type", "custom"},
              {"custom", {{"name", origin->name}, {"input", input_text(call)}}}};
    return {{"id", call_id(number)},
            {"type", "function"},
            {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
  }

  /// @param n_before  calls of choices before
  AnswerJson message(const GenerationOutput& text, std::size_t n_before) const {
    std::string content;
    std::string thoughts;
    AnswerJson calls = AnswerJson::array();
    for (const ReplyPart& part : parts_of(text)) {
      if (part.kind == ReplyPart::Kind::kContent) content += part.text;
      if (part.kind == ReplyPart::Kind::kThought) thoughts += part.text;
      if (part.kind == ReplyPart::Kind::kCall)
        calls.push_back(call_json(part.call, n_before + calls.size()));
    }
    AnswerJson json = {{"role", "assistant"}, {"content", content}, {"refusal", nullptr}};
    if (!thoughts.empty()) json["reasoning_content"] = thoughts;
    if (calls.empty()) return json;
    if (content.empty()) json["content"] = nullptr;
    json["tool_calls"] = std::move(calls);
    return json;
  }

  AnswerJson all_logprobs(std::size_t index, const GenerationOutput& text) const {
    if (!request_.options.logprobs) return nullptr;
    const Prompt& prompt = request_.prompt_of(index);
    LogprobsJson writer(served_.tokenizer(), shape(),
                        !request_.echo && request_.continues_text(index));
    for (std::size_t i = 0; request_.echo && i < prompt.ids.size(); ++i)
      writer.add(prompt.ids[i], i == 0 ? nullptr : &text.prompt_logprobs[i - 1]);
    for (std::size_t i = 0; i < text.result.ids.size(); ++i)
      writer.add(text.result.ids[i], &text.result.logprobs[i]);
    writer.add_end(text.end_logprobs);
    return writer.take();
  }

  AnswerJson choice(std::size_t index, const GenerationOutput& text) const {
    const GenerateResult& result = text.result;
    const Prompt& prompt = request_.prompt_of(index);
    AnswerJson logprobs = all_logprobs(index, text);
    AnswerJson json = {{"index", index}};
    bool has_calls = false;
    if (request_.is_chat) {
      json["message"] = message(text, index * kCallsOfChoice);
      has_calls = json["message"].contains("tool_calls");
    } else {
      const std::string echo = request_.echo ? served_.tokenizer().decode(prompt.ids) : "";
      json["text"] = echo + result.text;
    }
    json["logprobs"] = std::move(logprobs);
    json["finish_reason"] = finish_reason(result.stop_reason, has_calls);
    if (request_.receipt)
      json["receipt"] =
          parse_ordered_json(receipt_json(receipt_of(served_, request_, index, text)));
    return json;
  }

  /// llama-server's shape. @param text  nullptr: `piece` of it, which goes on
  AnswerJson infill(std::size_t index, std::string_view piece, const GenerationOutput* text,
                    AnswerJson logprobs) const {
    AnswerJson json = {{"index", index}, {"content", piece}, {"stop", text != nullptr}};
    if (!logprobs.is_null()) json["completion_probabilities"] = std::move(logprobs["content"]);
    if (text == nullptr) return json;
    const StopReason reason = text->result.stop_reason;
    json.update({{"id", id_},
                 {"model", served_.id},
                 {"system_fingerprint", system_fingerprint(served_, request_.adapters)},
                 {"tokens_evaluated", prompt_tokens()},
                 {"tokens_predicted", text->result.ids.size()},
                 {"stop_type", reason == StopReason::kEos          ? "eos"
                               : reason == StopReason::kStopString ? "word"
                                                                   : "limit"},
                 {"truncated", false}});
    if (request_.timings) {
      json["tokens_cached"] = text->cached_tokens;
      json["timings"] = timings_of(*text, prompt_tokens());
    }
    return json;
  }

  std::string chunk_of(std::size_t index, AnswerJson content, AnswerJson logprobs,
                       AnswerJson reason) const {
    return server_event(chunk(index, std::move(content), std::move(logprobs), std::move(reason)));
  }

  AnswerJson chunk(std::size_t index, AnswerJson content, AnswerJson logprobs,
                   AnswerJson reason) const {
    AnswerJson json = envelope(".chunk");
    json["choices"] = AnswerJson::array({{{"index", index},
                                          {request_.is_chat ? "delta" : "text", std::move(content)},
                                          {"logprobs", std::move(logprobs)},
                                          {"finish_reason", std::move(reason)}}});
    if (request_.include_usage) json["usage"] = nullptr;
    return json;
  }

  /// @param logprobs  go with the first of them, or alone
  std::string deltas(std::size_t index, const std::vector<ReplyPart>& parts, AnswerJson logprobs) {
    std::string events;
    const auto add = [&](AnswerJson delta) {
      events += chunk_of(index, std::move(delta), std::exchange(logprobs, nullptr), nullptr);
    };
    for (const ReplyPart& part : parts) {
      if (part.kind == ReplyPart::Kind::kContent) add({{"content", part.text}});
      if (part.kind == ReplyPart::Kind::kThought) add({{"reasoning_content", part.text}});
      AnswerJson call;
      if (part.kind == ReplyPart::Kind::kCall) {
        call = {{"index", n_calls_[index]}};
        call.update(call_json(part.call, index * kCallsOfChoice + n_calls_[index]++));
        takes_text_[index] = call["type"] == "custom";
      } else if (part.kind == ReplyPart::Kind::kArguments && !takes_text_[index]) {
        call = {{"index", n_calls_[index] - 1}, {"function", {{"arguments", part.text}}}};
      } else if (part.kind == ReplyPart::Kind::kCallEnd && takes_text_[index]) {
        // A string of JSON, which is read when it is whole.
        call = {{"index", n_calls_[index] - 1}, {"custom", {{"input", input_text(part.call)}}}};
      }
      if (!call.is_null()) add({{"tool_calls", AnswerJson::array({std::move(call)})}});
    }
    if (!logprobs.is_null()) add({{"content", ""}});
    return events;
  }

  static constexpr std::size_t kCallsOfChoice = 32;  // with ids of their own

  bool is_llama_;
  std::vector<LogprobsJson> logprobs_;  ///< of streamed choices
  std::vector<std::size_t> n_calls_;    ///< likewise
  std::vector<char> takes_text_;        ///< likewise: the last call is of a tool that takes a text
  std::size_t completion_tokens_ = 0;
  std::size_t cached_tokens_ = 0;
  AnswerJson timings_;  ///< of the first choice
};

}  // namespace

std::unique_ptr<AnswerWriter> completion_writer(const ServedModel& served,
                                                const AnswerRequest& request) {
  return std::make_unique<CompletionWriter>(served, request, /*is_llama=*/false);
}

std::unique_ptr<AnswerWriter> llama_writer(const ServedModel& served,
                                           const AnswerRequest& request) {
  return std::make_unique<CompletionWriter>(served, request, /*is_llama=*/true);
}

}  // namespace llm
