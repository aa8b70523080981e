#include "engine/chat/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "engine/chat/jinja/evaluator.h"
#include "engine/chat/jinja/lexer.h"
#include "engine/chat/jinja/parser.h"

namespace llm {
namespace {

using jinja::Meter;
using jinja::Runtime;
using jinja::Tag;
using jinja::Text;
using jinja::Value;

/// Words that the program itself knows, so that a user who writes one says nothing new.
bool is_known_role(const OrderedJson& role) {
  constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant",
                                                      "tool"};
  return role.is_string() &&
         std::ranges::find(kRoles, role.get_ref<const std::string&>()) != kRoles.end();
}

/// A message, its content tagged with its number.
Value message_value(Runtime& rt, const OrderedJson& message, std::size_t index) {
  if (!message.is_object()) return rt.from_json(message);
  jinja::DictObject made;
  for (const auto& [key, value] : message.items()) {
    Tag tag = jinja::kContent;
    if (key == "role" && is_known_role(value)) tag = jinja::kMarkup;
    if (key == "content" && value.is_string()) {
      tag = jinja::kFirstMessage + static_cast<Tag>(index);
    }
    rt.add(made, rt.text(key, jinja::kContent), rt.from_json(value, tag, 1));
  }
  return rt.dict(std::move(made));
}

Value messages_value(Runtime& rt, const OrderedJson& messages) {
  if (!messages.is_array()) return rt.from_json(messages);
  jinja::Values values;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    values.push_back(message_value(rt, messages[i], i));
  }
  return rt.list(std::move(values));
}

/// Runs of equal kind joined, but for messages that came out whole.
std::vector<ChatPart> parts_of(const Text& text, const OrderedJson& messages) {
  std::vector<ChatPart> parts;
  parts.reserve(text.runs().size());
  jinja::touch(64 * text.runs().size());
  std::size_t begin = 0;
  for (const Text::Run& run : text.runs()) {
    const std::string_view bytes = text.bytes().substr(begin, run.end - begin);
    begin = run.end;
    ChatPart part{std::string(bytes), run.tag == jinja::kMarkup};
    if (run.tag >= jinja::kFirstMessage) {
      const std::size_t i = run.tag - jinja::kFirstMessage;
      if (messages[i]["content"].get_ref<const std::string&>() == bytes) part.message = i;
    }
    const bool joins = !parts.empty() && parts.back().is_markup == part.is_markup &&
                       !parts.back().message && !part.message;
    if (joins) {
      parts.back().text += part.text;
    } else {
      parts.push_back(std::move(part));
    }
  }
  const auto is_content = [&](std::size_t i) { return i < parts.size() && !parts[i].is_markup; };
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (is_content(i + 1) || (i > 0 && is_content(i - 1))) parts[i].message.reset();
  }
  return parts;
}

}  // namespace

struct ChatTemplate::Parsed {
  jinja::Body body;
};

Result<ChatTemplate> ChatTemplate::parse(std::string jinja) {
  if (jinja.size() > kMaxBytes) {
    return Error{ErrorCode::kResource, "chat template",
                 fmt::format("found {} bytes, need at most {}", jinja.size(), kMaxBytes)};
  }
  auto parsed = std::make_shared<Parsed>();
  LLM_RETURN_IF_ERROR(jinja::metered(Meter::kMaxSourceBytes, {}, [&](Meter&) -> Status {
    LLM_TRY(const auto tokens, jinja::lex(jinja));
    LLM_TRY(parsed->body, jinja::Parser(*tokens).parse());
    return Ok{};
  }));
  return ChatTemplate(std::move(jinja), std::move(parsed));
}

/// @pre on a metered thread
static Result<std::vector<ChatPart>> parts_of_chat(const jinja::Body& body, const ChatInput& input,
                                                   Meter& meter) {
  Runtime rt(meter);
  rt.date = input.date;
  jinja::Scope variables;
  variables.set("documents", jinja::None{});
  // Before what follows, whose place none takes.
  for (const auto& [name, value] : input.variables.items()) {
    variables.set(name, rt.from_json(value));
  }
  variables.set("messages", messages_value(rt, input.messages));
  variables.set("tools", rt.from_json(input.tools));
  variables.set("add_generation_prompt", input.add_generation_prompt);
  if (!input.bos_token.empty())
    variables.set("bos_token", rt.text(input.bos_token, jinja::kMarkup));
  if (!input.eos_token.empty())
    variables.set("eos_token", rt.text(input.eos_token, jinja::kMarkup));
  Text text;
  if (!rt.failed()) {
    jinja::Scope scope{.outer = &variables};
    text = jinja::Evaluator(rt).render(body, scope);
  }
  if (rt.failed()) return *rt.error();
  return parts_of(text, input.messages);
}

Result<std::vector<ChatPart>> ChatTemplate::render(const ChatInput& input,
                                                   const RenderLimits& limits) const {
  std::vector<ChatPart> parts;
  LLM_RETURN_IF_ERROR(jinja::metered(Meter::kMaxValueBytes, limits, [&](Meter& meter) -> Status {
    LLM_TRY(parts, parts_of_chat(parsed_->body, input, meter));
    return Ok{};
  }));
  return parts;
}

std::string chat_text(const std::vector<ChatPart>& parts) {
  std::string text;
  for (const ChatPart& part : parts) text += part.text;
  return text;
}

}  // namespace llm
