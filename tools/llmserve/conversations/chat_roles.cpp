#include "tools/llmserve/conversations/chat_roles.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

namespace llm {
namespace {

/// Whether the template writes all messages of these roles.
bool writes(const ChatStyle& style, std::initializer_list<std::string_view> roles) {
  OrderedJson messages = OrderedJson::array();
  for (const std::string_view role : roles)
    messages.push_back(chat_message(role, fmt::format("zzmessage{}z", messages.size())));
  const auto parts = style.render(messages);
  if (!parts.ok()) return false;
  const std::string text = chat_text(*parts);
  return std::ranges::all_of(messages, [&](const OrderedJson& message) {
    return text.find(message["content"].get_ref<const std::string&>()) != std::string::npos;
  });
}

std::string& content_of(OrderedJson& message) { return message["content"].get_ref<std::string&>(); }

/// Adds a text, behind an empty line where there is one. In place: many become one message.
void append(std::string& text, const std::string& more) {
  if (!text.empty() && !more.empty()) text += "\n\n";
  text += more;
}

bool is_of(const OrderedJson& message, std::string_view role) { return message["role"] == role; }

void join_leading(OrderedJson& messages) {
  const auto is_other = [](const OrderedJson& message) { return !is_of(message, "system"); };
  const auto end = std::ranges::find_if(messages, is_other);
  if (end - messages.begin() < 2) return;
  const auto second = messages.begin() + 1;
  for (auto next = second; next != end; ++next) append(content_of(messages[0]), content_of(*next));
  messages.erase(second, end);
}

/// @param kept  leading messages that stay what they are
void give_to_user(OrderedJson& messages, std::size_t kept, RequestNotes& notes) {
  OrderedJson placed = OrderedJson::array();
  std::string before;  // what the user's next message begins with
  const auto say = [&] {
    if (!before.empty()) placed.push_back(chat_message("user", std::exchange(before, "")));
  };
  for (std::size_t i = 0; i < messages.size(); ++i) {
    OrderedJson& message = messages[i];
    if (i >= kept && is_of(message, "system")) {
      notes.change(
          fmt::format("messages[{}].role", i),
          "a system message that the template does not support there; added to a user message");
      const bool next_is_users = i + 1 < messages.size() && (is_of(messages[i + 1], "user") ||
                                                             is_of(messages[i + 1], "system"));
      const bool last_is_users = before.empty() && !placed.empty() && is_of(placed.back(), "user");
      if (!next_is_users && last_is_users)
        append(content_of(placed.back()), content_of(message));
      else
        append(before, content_of(message));
      continue;
    }
    if (is_of(message, "user")) {
      append(before, content_of(message));
      content_of(message) = std::exchange(before, "");
    } else {
      say();
    }
    placed.push_back(std::move(message));
  }
  say();
  messages = std::move(placed);
}

/// Neighbours of one role are one message.
void join_neighbours(OrderedJson& messages) {
  OrderedJson placed = OrderedJson::array();
  for (OrderedJson& message : messages) {
    const bool is_plain = !message.contains("tool_calls") && !is_of(message, "tool");
    if (is_plain && !placed.empty() && placed.back()["role"] == message["role"] &&
        !placed.back().contains("tool_calls"))
      append(content_of(placed.back()), content_of(message));
    else
      placed.push_back(std::move(message));
  }
  messages = std::move(placed);
}

}  // namespace

ChatRoles chat_roles(const ChatStyle& style) {
  ChatRoles roles;
  // A template that does not write a plain conversation is not judged by what it makes of others.
  if (!writes(style, {"user"})) return roles;
  roles.system_first = writes(style, {"system", "user"});
  roles.system_later =
      roles.system_first && writes(style, {"system", "user", "system"}) &&
      writes(style, {"user", "system", "assistant", "system", "user"}) &&
      writes(style, {"system", "user", "assistant", "system", "user", "assistant", "user"});
  roles.repeats =
      writes(style, {"user", "user"}) && writes(style, {"user", "assistant", "assistant", "user"});
  return roles;
}

void place_messages(const ChatRoles& roles, RequestedChat& chat) {
  join_leading(chat.messages);
  const bool leads = !chat.messages.empty() && is_of(chat.messages[0], "system");
  const std::size_t kept = leads && roles.system_first ? 1 : 0;
  if (!roles.system_later) give_to_user(chat.messages, kept, chat.notes);
  if (!roles.repeats) join_neighbours(chat.messages);
}

}  // namespace llm
