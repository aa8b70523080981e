#include "engine/generate/chat_template.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "engine/generate/chat_template_table.h"

namespace llm {
namespace {

using Role = ChatMessage::Role;
using Text = std::string_view;

/// What Python's str.strip() takes for white space, in UTF-8. Source: CPython's str.isspace().
constexpr std::array<Text, 29> kSpaces = {
    "\t",     "\n",     "\v",     "\f",     "\r",     "\x1c",   "\x1d",   "\x1e",
    "\x1f",   " ",      "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002",
    "\u2003", "\u2004", "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200a",
    "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"};
constexpr std::array<Text, 1> kLineBreak = {"\n"};

Text strip_front(Text text, std::span<const Text> of = kSpaces) {
  const auto starts = [&](Text space) { return text.starts_with(space); };
  for (auto at = of.begin(); (at = std::ranges::find_if(of, starts)) != of.end();) {
    text.remove_prefix(at->size());
  }
  return text;
}

Text strip_back(Text text, std::span<const Text> of = kSpaces) {
  const auto ends = [&](Text space) { return text.ends_with(space); };
  for (auto at = of.begin(); (at = std::ranges::find_if(of, ends)) != of.end();) {
    text.remove_suffix(at->size());
  }
  return text;
}

/// Strips the text that the parts make together.
void strip_parts(std::span<ChatPart> parts) {
  for (ChatPart& part : parts) {
    part.text = std::string(strip_front(part.text));
    if (!part.text.empty()) break;
  }
  for (std::size_t i = parts.size(); i-- > 0;) {
    parts[i].text = std::string(strip_back(parts[i].text));
    if (!parts[i].text.empty()) break;
  }
}

void remove_all(std::string& text, Text what) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos;) {
    text.erase(at, what.size());
  }
}

/// A reply that thinks aloud, taken apart.
struct Thought {
  Text thinking;
  Text answer;
};

Thought take_apart(Text reply) {
  constexpr Text kBegin = "<think>";
  constexpr Text kEnd = "</think>";
  const std::size_t end = reply.find(kEnd);
  if (end == Text::npos) return {{}, reply};
  Text thinking = strip_back(reply.substr(0, end), kLineBreak);
  if (const std::size_t begin = thinking.rfind(kBegin); begin != Text::npos) {
    thinking.remove_prefix(begin + kBegin.size());
  }
  return {strip_front(thinking, kLineBreak),
          strip_front(reply.substr(reply.rfind(kEnd) + kEnd.size()), kLineBreak)};
}

/// The user's last message that is a question, and not in the form of a tool's answer.
std::size_t last_question(std::span<const ChatMessage> messages) {
  for (std::size_t i = messages.size(); i-- > 0;) {
    const std::string& text = messages[i].content;
    const bool is_tool = text.starts_with("<tool_response>") && text.ends_with("</tool_response>");
    if (messages[i].role == Role::kUser && !is_tool) return i;
  }
  return messages.size() - 1;
}

class Formatter {
 public:
  Formatter(const Markup& markup, std::span<const ChatMessage> messages)
      : markup_(&markup), messages_(messages), last_question_(last_question(messages)) {}

  std::vector<ChatPart> format() {
    if (messages_.front().role == Role::kSystem) system_ = messages_.front().content;
    if (markup_->format == ChatFormat::kSmolLm3) choose_smollm3_mode();
    if (markup_->system_place == SystemPlace::kOwnTurn) add_system();
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      LLM_CHECK(messages_[i].role != Role::kSystem || i == 0);
      if (messages_[i].role == Role::kUser) add_user(messages_[i], i + 1 == messages_.size());
      if (messages_[i].role == Role::kAssistant) add_reply(i);
    }
    return std::move(parts_);
  }

 private:
  void add_markup(Text text) {
    if (!text.empty()) parts_.push_back({std::string(text), true});
  }
  void add_text(Text text) { parts_.push_back({std::string(text), false}); }

  /// The system message switches thinking on or off, with words that are then taken out.
  void choose_smollm3_mode() {
    if (!system_) return;
    if (system_->find("/no_think") != std::string::npos) markup_ = &smollm3_without_thinking();
    remove_all(*system_, "/no_think");
    remove_all(*system_, "/think");
    *system_ = std::string(strip_back(*system_));
    if (system_->empty()) system_.reset();
  }

  void add_system() {
    if (!system_ && !markup_->default_system) return;
    add_markup(markup_->system_begin);
    if (!system_) {
      add_markup(*markup_->default_system);
    } else {
      const bool strips =
          markup_->strip == Strip::kContents && markup_->system_place == SystemPlace::kOwnTurn;
      add_text(strips ? strip_front(strip_back(*system_)) : Text(*system_));
    }
    add_markup(markup_->system_end);
  }

  void add_user(const ChatMessage& message, bool is_last) {
    add_markup(markup_->user_begin);
    std::size_t begin = parts_.size();
    const bool is_place = markup_->system_place == SystemPlace::kFirstUser ||
                          (markup_->system_place == SystemPlace::kLastUser && is_last);
    if (is_place && system_) {
      add_system();
      if (markup_->system_place == SystemPlace::kFirstUser) system_.reset();
    }
    if (markup_->strip == Strip::kContents) begin = parts_.size();
    add_text(message.content);
    if (markup_->strip != Strip::kNothing) strip_parts(std::span(parts_).subspan(begin));
    add_markup(markup_->user_end);
  }

  void add_reply(std::size_t at) {
    const Text given = messages_[at].content;
    Text text = markup_->strip == Strip::kNothing ? given : strip_front(strip_back(given));
    if (markup_->reply_rule == ReplyRule::kNoLeadingLines) text = strip_front(text, kLineBreak);
    if (markup_->reply_rule == ReplyRule::kNoThinking) {
      const Thought thought = take_apart(text);
      text = thought.answer;
      if (at > last_question_ && !thought.thinking.empty()) {
        add_markup("<think>\n");
        add_text(strip_back(thought.thinking, kLineBreak));
        add_markup("\n</think>\n\n");
        text = strip_front(text, kLineBreak);
      }
    }
    ChatPart part{std::string(markup_->reply_begin).append(text), false};
    if (text == given) part.reply = n_replies_;
    ++n_replies_;
    parts_.push_back(std::move(part));
    add_markup(markup_->reply_end);
  }

  const Markup* markup_;
  std::span<const ChatMessage> messages_;
  std::size_t last_question_;
  std::optional<std::string> system_;
  std::size_t n_replies_ = 0;
  std::vector<ChatPart> parts_;
};

}  // namespace

std::vector<ChatPart> format_chat(ChatFormat format, std::span<const ChatMessage> messages) {
  LLM_CHECK(!messages.empty() && messages.back().role == Role::kUser);
  return Formatter(markup_of(format), messages).format();
}

std::vector<std::string> reply_ends(ChatFormat format) {
  const auto& stops = markup_of(format).stops;
  return {stops.begin(), stops.end()};
}

}  // namespace llm
