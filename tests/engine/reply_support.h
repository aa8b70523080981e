#pragma once

#include "engine/chat/chat_template.h"
#include "engine/chat/reply_format.h"
#include "engine/chat/reply_parser.h"
#include "tests/support/test.h"

namespace llm::test {

inline OrderedJson function(const char* name, const OrderedJson& properties,
                            const char* required = nullptr) {
  OrderedJson parameters = {{"type", "object"}, {"properties", properties}};
  if (required != nullptr) parameters["required"] = OrderedJson::array({required});
  return {{"type", "function"},
          {"function", {{"name", name}, {"description", "d"}, {"parameters", parameters}}}};
}

/// A template, and how its model's replies are read.
struct ChatModel {
  ChatTemplate chat;
  ReplyFormat format;

  Result<std::string> render(const OrderedJson& messages, const OrderedJson& functions,
                             bool asks) const {
    ChatInput input{.messages = messages,
                    .tools = functions,
                    .add_generation_prompt = asks,
                    .bos_token = "<s>",
                    .eos_token = "</s>"};
    input.date = std::chrono::year(2026) / 11 / 26;
    LLM_TRY(const auto parts, chat.render(input));
    return chat_text(parts);
  }
};

inline ChatModel chat_model(const std::string& jinja, const std::vector<std::string>& ends = {},
                            std::string_view marks = {}) {
  ChatModel model{require_ok(ChatTemplate::parse(jinja)), {}};
  const auto render = [&](const OrderedJson& messages, const OrderedJson& functions, bool asks) {
    return model.render(messages, functions, asks);
  };
  model.format = reply_format(jinja, render, ends, marks);
  return model;
}

/// A template whose replies write calls `c` so: `open`, the calls with `joint` between, `close`.
inline std::string calling_template(const std::string& open, const std::string& call,
                                    const std::string& joint, const std::string& close) {
  return "{% macro parts(v) %}{% if v is mapping %}{% for k, x in v | items %}]<]m[>[<{{ k }}>"
         "{{ parts(x) }}]<]m[>[</{{ k }}>{% endfor %}{% elif v is string or v is number %}{{ v }}"
         "{% elif v is iterable %}{% for x in v %}]<]m[>[<item>{{ parts(x) }}]<]m[>[</item>"
         "{% endfor %}{% else %}{{ v | tojson }}{% endif %}{% endmacro %}"
         "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|{{ "
         "m.role }}|>{{ m.content }}{% if m.tool_calls %}" +
         open + "{% for c in m.tool_calls %}{% if not loop.first %}" + joint + "{% endif %}" +
         call + "{% endfor %}" + close +
         "{% endif %}<|end|>\n{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";
}

/// What the model of such a template writes for these calls, each {"name", "arguments"}.
inline std::string written(const ChatModel& model, const OrderedJson& calls,
                           const std::string& content = "") {
  OrderedJson list = OrderedJson::array();
  for (const OrderedJson& call : calls)
    list.push_back({{"id", "abc000" + std::to_string(100 + list.size())}, {"function", call}});
  const OrderedJson reply = {{"role", "assistant"}, {"content", content}, {"tool_calls", list}};
  const std::string text = require_ok(model.render(OrderedJson::array({reply}), nullptr, false));
  const std::size_t begin = std::string("<|assistant|>").size();
  return text.substr(begin, text.rfind("<|end|>") - begin);
}

/// The parts of a reply that comes in pieces of `step` bytes.
inline std::vector<ReplyPart> pushed(ReplyParser parser, const std::string& reply, std::size_t step,
                                     bool is_cut = false) {
  std::vector<ReplyPart> parts;
  for (std::size_t i = 0; i < reply.size(); i += step)
    std::ranges::move(parser.push(reply.substr(i, step)), std::back_inserter(parts));
  std::ranges::move(parser.finish(is_cut), std::back_inserter(parts));
  return parts;
}

}  // namespace llm::test
