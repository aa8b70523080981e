// The shape of Anthropic's /v1/messages. Source: Anthropic's API reference, "Messages" and
// "Streaming Messages".

#include <fmt/format.h>

#include <utility>

#include "tools/llmserve/api/answer_json.h"
#include "tools/llmserve/api/answer_request.h"

namespace llm {
namespace {

class MessagesWriter : public AnswerWriter {
 public:
  MessagesWriter(const ServedModel& served, const AnswerRequest& request)
      : AnswerWriter(served, request, "msg_") {}

  std::string whole(std::span<const GenerationOutput> texts) const override {
    AnswerJson blocks = AnswerJson::array();
    for (ReplyPart& part : parts_of(texts[0], UnfinishedCall::kLeftOut)) {
      AnswerJson block = block_of(part, blocks.size());
      if (const char* const member = text_member(part.kind))
        block[member] = std::move(part.text);
      else
        block["input"] = parse_ordered_json(part.call.arguments);
      blocks.push_back(std::move(block));
    }
    AnswerJson json = message();
    const bool has_calls = !blocks.empty() && blocks.back()["type"] == "tool_use";
    json["content"] = std::move(blocks);
    json.update(stop_of(texts[0], has_calls));
    json["usage"] = usage_of(texts[0]);
    return json_text(json) + "\n";
  }

  std::string opening() override {
    return event({{"type", "message_start"}, {"message", message()}});
  }

  std::string growth(std::size_t, const TextEvent& piece) override {
    return deltas(parsers_[0].push(piece.text));
  }

  std::string closing(std::size_t, const GenerationOutput& text) override {
    std::string events = deltas(parsers_[0].finish(is_cut(text)));
    events += close_block();
    return events + event({{"type", "message_delta"},
                           {"delta", stop_of(text, last_ == ReplyPart::Kind::kCall)},
                           {"usage", usage_of(text)}});
  }

  std::string ending() override { return event({{"type", "message_stop"}}); }

  std::string failure(std::string_view error_body) const override {
    return fmt::format("event: error\n{}", AnswerWriter::failure(error_body));
  }

 private:
  static std::string event(const AnswerJson& json) {
    return server_event(json, json["type"].get<std::string>());
  }

  /// Where a block of that kind has its text; nullptr: it is a call.
  static const char* text_member(ReplyPart::Kind kind) {
    if (kind == ReplyPart::Kind::kCall) return nullptr;
    return kind == ReplyPart::Kind::kThought ? "thinking" : "text";
  }

  /// What was stored already is counted apart.
  AnswerJson usage_of(const GenerationOutput& text) const {
    return {{"input_tokens", prompt_tokens() - text.cached_tokens},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", text.cached_tokens},
            {"output_tokens", text.result.ids.size()}};
  }

  AnswerJson message() const {
    return {{"id", id_},
            {"type", "message"},
            {"role", "assistant"},
            {"model", served_.id},
            {"content", AnswerJson::array()},
            {"stop_reason", nullptr},
            {"stop_sequence", nullptr},
            {"usage", {{"input_tokens", prompt_tokens()}, {"output_tokens", 0}}}};
  }

  /// As it begins.
  AnswerJson block_of(const ReplyPart& part, std::size_t n) const {
    if (part.kind == ReplyPart::Kind::kCall)
      return {{"type", "tool_use"},
              {"id", call_id(n)},
              {"name", part.call.name},
              {"input", AnswerJson::object()}};
    if (part.kind == ReplyPart::Kind::kThought)
      return {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
    return {{"type", "text"}, {"text", ""}};
  }

  AnswerJson stop_of(const GenerationOutput& text, bool has_calls) const {
    const StopReason reason = text.result.stop_reason;
    const bool by_string = reason == StopReason::kStopString;
    const char* word = reason == StopReason::kEos ? (has_calls ? "tool_use" : "end_turn")
                       : by_string                ? "stop_sequence"
                                                  : "max_tokens";
    return {{"stop_reason", word}, {"stop_sequence", nullptr}};
  }

  std::string deltas(const std::vector<ReplyPart>& parts) {
    using Kind = ReplyPart::Kind;
    std::string events;
    for (const ReplyPart& part : parts) {
      if (part.kind == Kind::kCallEnd) {
        events += close_block();
        continue;
      }
      const bool goes_on = part.kind == Kind::kArguments || (is_open_ && part.kind == last_);
      if (part.kind == Kind::kCall || !goes_on) {
        events += close_block();
        events += event({{"type", "content_block_start"},
                         {"index", n_blocks_},
                         {"content_block", block_of(part, n_blocks_)}});
        is_open_ = true;
        last_ = part.kind;
      }
      if (part.kind == Kind::kCall) continue;
      AnswerJson delta = {{"type", "input_json_delta"}, {"partial_json", part.text}};
      if (part.kind != Kind::kArguments) {
        const std::string member = text_member(part.kind);
        delta = {{"type", member + "_delta"}, {member, part.text}};
      }
      events += event({{"type", "content_block_delta"}, {"index", n_blocks_}, {"delta", delta}});
    }
    return events;
  }

  std::string close_block() {
    if (!std::exchange(is_open_, false)) return "";
    return event({{"type", "content_block_stop"}, {"index", n_blocks_++}});
  }

  std::size_t n_blocks_ = 0;  ///< that have ended
  bool is_open_ = false;
  ReplyPart::Kind last_ = ReplyPart::Kind::kContent;
};

}  // namespace

std::unique_ptr<AnswerWriter> messages_writer(const ServedModel& served,
                                              const AnswerRequest& request) {
  return std::make_unique<MessagesWriter>(served, request);
}

}  // namespace llm
