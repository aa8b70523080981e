// The shape of OpenAI's /v1/responses. Source: OpenAI's API reference, "Responses" and "Streaming
// events".

#include <fmt/format.h>

#include <utility>

#include "tools/llmserve/api/answer_json.h"
#include "tools/llmserve/api/answer_request.h"

namespace llm {
namespace {

class ResponsesWriter : public AnswerWriter {
 public:
  ResponsesWriter(const ServedModel& served, const AnswerRequest& request)
      : AnswerWriter(served, request, "resp_") {}

  std::string whole(std::span<const GenerationOutput> texts) const override {
    AnswerJson items = AnswerJson::array();
    for (const ReplyPart& part : parts_of(texts[0]))
      items.push_back(item_of(part, items.size(), true));
    return json_text(ended(texts[0], std::move(items))) + "\n";
  }

  std::string opening() override {
    AnswerJson begun = response();
    begun["status"] = "in_progress";
    std::string events = event("response.created", {{"response", begun}});
    events += event("response.in_progress", {{"response", begun}});
    return events;
  }

  std::string growth(std::size_t, const TextEvent& piece) override {
    return deltas(parsers_[0].push(piece.text));
  }

  std::string closing(std::size_t, const GenerationOutput& text) override {
    std::string events = deltas(parsers_[0].finish(is_cut(text)));
    events += close_item();
    AnswerJson json = ended(text, std::move(items_));
    const std::string name = "response." + json["status"].get<std::string>();
    events += event(name, {{"response", std::move(json)}});
    return events;
  }

  std::string failure(std::string_view error_body) const override {
    const AnswerJson error = parse_ordered_json(error_body)["error"];
    return server_event({{"type", "error"},
                         {"code", error["code"]},
                         {"message", error["message"]},
                         {"param", error["param"]},
                         {"sequence_number", n_events_}},
                        "error");
  }

 private:
  using Kind = ReplyPart::Kind;

  std::string event(const std::string& type, AnswerJson rest) {
    AnswerJson json = {{"type", type}, {"sequence_number", n_events_++}};
    json.update(rest);
    return server_event(json, type);
  }

  AnswerJson response() const {
    const SamplerOptions& sampler = request_.options.sampler;
    return {{"id", id_},
            {"object", "response"},
            {"created_at", created_},
            {"status", "completed"},
            {"error", nullptr},
            {"incomplete_details", nullptr},
            {"instructions", nullptr},
            {"max_output_tokens", *request_.options.max_tokens},
            {"model", served_.id},
            {"output", AnswerJson::array()},
            {"parallel_tool_calls", true},
            {"previous_response_id", nullptr},
            {"store", false},
            {"temperature", sampler.temperature},
            {"top_p", sampler.top_p},
            {"tool_choice", "auto"},
            {"tools", AnswerJson::array()},
            {"usage", nullptr},
            {"metadata", AnswerJson::object()}};
  }

  AnswerJson ended(const GenerationOutput& text, AnswerJson items) const {
    const StopReason reason = text.result.stop_reason;
    const bool is_whole = reason == StopReason::kEos || reason == StopReason::kStopString;
    AnswerJson json = response();
    if (!is_whole) {
      json["status"] = "incomplete";
      json["incomplete_details"] = {{"reason", "max_output_tokens"}};
    }
    json["output"] = std::move(items);
    const std::size_t n = text.result.ids.size();
    json["usage"] = {{"input_tokens", prompt_tokens()},
                     {"input_tokens_details", {{"cached_tokens", text.cached_tokens}}},
                     {"output_tokens", n},
                     {"output_tokens_details", {{"reasoning_tokens", 0}}},
                     {"total_tokens", prompt_tokens() + n}};
    return json;
  }

  bool is_of_text(const FunctionCall& call) const {
    const ToolOrigin* origin = origin_of(call);
    return origin != nullptr && origin->takes_text;
  }
  /// What the client gets of a call's arguments.
  std::string text_of(const FunctionCall& call) const {
    return is_of_text(call) ? input_text(call) : call.arguments;
  }
  std::string call_event(const char* what) const {
    return fmt::format(
        "response.{}.{}",
        is_of_text(open_.call) ? "custom_tool_call_input" : "function_call_arguments", what);
  }

  static const char* text_type(Kind kind) {
    return kind == Kind::kThought ? "reasoning_text" : "output_text";
  }

  static AnswerJson text_part(Kind kind, const std::string& text) {
    AnswerJson json = {{"type", text_type(kind)}, {"text", text}};
    if (kind == Kind::kContent)
      json.update({{"annotations", AnswerJson::array()}, {"logprobs", AnswerJson::array()}});
    return json;
  }

  /// @param is_whole  with its contents
  AnswerJson item_of(const ReplyPart& part, std::size_t n, bool is_whole) const {
    const char* const status = is_whole ? "completed" : "in_progress";
    if (part.kind == Kind::kCall) {
      const ToolOrigin* origin = origin_of(part.call);
      const bool takes_text = is_of_text(part.call);
      AnswerJson call = {{"type", takes_text ? "custom_tool_call" : "function_call"},
                         {"id", fmt::format("{}_{}{}", takes_text ? "ctc" : "fc", digits_, n)},
                         {"call_id", call_id(n)},
                         {"name", origin == nullptr ? part.call.name : origin->name},
                         {takes_text ? "input" : "arguments", is_whole ? text_of(part.call) : ""},
                         {"status", status}};
      if (origin != nullptr && !origin->name_space.empty()) call["namespace"] = origin->name_space;
      return call;
    }
    AnswerJson contents = AnswerJson::array();
    if (is_whole) contents.push_back(text_part(part.kind, part.text));
    if (part.kind == Kind::kThought) {
      return {{"type", "reasoning"},
              {"id", fmt::format("rs_{}{}", digits_, n)},
              {"summary", AnswerJson::array()},
              {"content", std::move(contents)}};
    }
    return {{"type", "message"},
            {"id", fmt::format("msg_{}{}", digits_, n)},
            {"status", status},
            {"role", "assistant"},
            {"content", std::move(contents)}};
  }

  AnswerJson place() const {
    return {{"item_id", open_item_["id"]}, {"output_index", items_.size()}};
  }
  AnswerJson place_in_item() const {
    AnswerJson json = place();
    json["content_index"] = 0;
    return json;
  }

  std::string deltas(const std::vector<ReplyPart>& parts) {
    std::string events;
    for (const ReplyPart& part : parts) {
      if (part.kind == Kind::kCallEnd) {
        if (is_open_ && is_of_text(open_.call)) {
          AnswerJson json = place();
          json["delta"] = text_of(open_.call);
          events += event(call_event("delta"), std::move(json));
        }
        events += close_item();
        continue;
      }
      const bool is_call = part.kind == Kind::kArguments;
      if (part.kind == Kind::kCall || !(is_call || (is_open_ && part.kind == open_.kind))) {
        events += close_item();
        events += open_item(part);
      }
      if (part.kind == Kind::kCall) continue;
      if (is_call) {
        open_.call.arguments += part.text;
        if (is_of_text(open_.call)) continue;  // a string of JSON, which is read when it is whole
      }
      AnswerJson json = is_call ? place() : place_in_item();
      json["delta"] = part.text;
      if (part.kind == Kind::kContent) json["logprobs"] = AnswerJson::array();
      events += event(
          is_call ? call_event("delta") : fmt::format("response.{}.delta", text_type(part.kind)),
          std::move(json));
      open_.text += part.text;
    }
    return events;
  }

  std::string open_item(const ReplyPart& part) {
    is_open_ = true;
    open_ = {part.kind, "", part.call};
    open_item_ = item_of(open_, items_.size(), false);
    std::string events = event("response.output_item.added",
                               {{"output_index", items_.size()}, {"item", open_item_}});
    if (part.kind == Kind::kCall) return events;
    AnswerJson json = place_in_item();
    json["part"] = text_part(part.kind, "");
    events += event("response.content_part.added", std::move(json));
    return events;
  }

  std::string close_item() {
    if (!std::exchange(is_open_, false)) return "";
    std::string events;
    if (open_.kind == Kind::kCall) {
      AnswerJson json = place();
      if (!is_of_text(open_.call)) json["name"] = item_of(open_, items_.size(), true)["name"];
      json[is_of_text(open_.call) ? "input" : "arguments"] = text_of(open_.call);
      events = event(call_event("done"), std::move(json));
    } else {
      AnswerJson done = place_in_item();
      done["text"] = open_.text;
      if (open_.kind == Kind::kContent) done["logprobs"] = AnswerJson::array();
      events = event(fmt::format("response.{}.done", text_type(open_.kind)), std::move(done));
      AnswerJson part = place_in_item();
      part["part"] = text_part(open_.kind, open_.text);
      events += event("response.content_part.done", std::move(part));
    }
    AnswerJson item = item_of(open_, items_.size(), true);
    events += event("response.output_item.done", {{"output_index", items_.size()}, {"item", item}});
    items_.push_back(std::move(item));
    return events;
  }

  std::size_t n_events_ = 0;
  AnswerJson items_ = AnswerJson::array();  ///< that have ended
  bool is_open_ = false;
  ReplyPart open_ = {};  ///< with all its text so far
  AnswerJson open_item_;
};

}  // namespace

std::unique_ptr<AnswerWriter> responses_writer(const ServedModel& served,
                                               const AnswerRequest& request) {
  return std::make_unique<ResponsesWriter>(served, request);
}

}  // namespace llm
