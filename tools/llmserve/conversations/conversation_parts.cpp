#include "tools/llmserve/conversations/conversation_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace llm {
namespace {

/// The last message where it is the assistant's, else a new one of theirs.
OrderedJson& last_reply(RequestedChat& chat) {
  if (chat.messages.empty() || chat.messages.back()["role"] != "assistant")
    chat.add("assistant", "");
  return chat.messages.back();
}

/// Anthropic's: a text, parts, or what nobody here can read.
Result<std::string> text_of_document(const OrderedJson& part, const std::string& path,
                                     const TextPlace& place) {
  const OrderedJson& source = member_at(part, "source");
  if (!source.is_object()) return wrong_field(path + ".source", shown_json(source), "an object");
  const OrderedJson& type = member_at(source, "type");
  if (type == "content")
    return text_of(member_at(source, "content"), path + ".source.content", place);
  if (type != "text") return unreadable("document", path + ".source", place);
  LLM_TRY(std::string text, text_at(source, "data", path + ".source"));
  const OrderedJson& title = member_at(part, "title");
  return title.is_string() ? title.get<std::string>() + "\n" + text : text;
}

}  // namespace

const OrderedJson& member_at(const OrderedJson& object, std::string_view name) {
  static const OrderedJson kNone;
  const auto at = object.find(name);
  return at == object.end() ? kNone : *at;
}

Result<std::string> text_at(const OrderedJson& object, const char* name, const std::string& path) {
  const auto at = object.find(name);
  if (at != object.end() && at->is_string()) return at->get<std::string>();
  return wrong_field(path + "." + name, at == object.end() ? "nothing" : shown_json(*at),
                     "a string");
}

Result<std::string> type_of(const OrderedJson& object, const std::string& path) {
  if (!object.is_object()) return wrong_field(path, shown_json(object), "an object");
  return text_at(object, "type", path);
}

std::string unreadable(std::string_view what, const std::string& path, const TextPlace& place) {
  if (place.role == "user" && !place.chat.unread)
    place.chat.unread =
        wrong_field(path, fmt::format("an {}", what), "text: no other content is supported");
  place.chat.notes.change(path, "replaced by a note: only text models are supported");
  return fmt::format("[{}: this model reads text only]", what);
}

Result<std::string> text_of_part(const OrderedJson& part, const std::string& path,
                                 const TextPlace& place) {
  static constexpr std::array<std::string_view, 4> kTexts = {"text", "input_text", "output_text",
                                                             "refusal"};
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kOthers = {
      {{"image", "image"},
       {"image_url", "image"},
       {"input_image", "image"},
       {"computer_screenshot", "image"},
       {"audio", "audio"},
       {"audio_url", "audio"},
       {"input_audio", "audio"},
       {"video", "video"},
       {"video_url", "video"},
       {"file", "file"},
       {"input_file", "file"},
       {"container_upload", "file"}}};
  LLM_TRY(const std::string type, type_of(part, path));
  if (std::ranges::find(kTexts, type) != kTexts.end())
    return text_at(part, type == "refusal" ? "refusal" : "text", path);
  if (type == "document") return text_of_document(part, path, place);
  if (type == "search_result") return text_of(member_at(part, "content"), path, place);
  const auto other =
      std::ranges::find(kOthers, type, &std::pair<std::string_view, std::string_view>::first);
  if (other != kOthers.end()) return unreadable(other->second, path + ".type", place);
  if (place.role == "user") {
    if (!place.chat.unread)
      place.chat.unread = wrong_field(path + ".type", shown_json(type), "text");
  }
  place.chat.notes.ignore(path + "." + type, "left out");
  return std::string();
}

Result<std::string> text_of(const OrderedJson& content, const std::string& path,
                            const TextPlace& place) {
  if (content.is_null()) return std::string();
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array())
    return wrong_field(path, shown_json(content), "a string or an array of parts");
  std::string text;
  bool was_plain = true;
  for (std::size_t i = 0; i < content.size(); ++i) {
    std::string piece;
    if (content[i].is_string()) {
      piece = content[i].get<std::string>();
    } else {
      LLM_TRY(piece, text_of_part(content[i], at_index(path, i), place));
    }
    const bool is_plain = content[i].is_string() || content[i].contains("text");
    // What was no text stands on lines of its own.
    if (!(is_plain && was_plain) && !text.empty() && !piece.empty()) text += "\n";
    text += piece;
    was_plain = is_plain;
  }
  return text;
}

OrderedJson call_json(std::string id, std::string name, std::string arguments) {
  return {{"id", std::move(id)},
          {"type", "function"},
          {"function", {{"name", std::move(name)}, {"arguments", std::move(arguments)}}}};
}

Result<std::string> arguments_at(const OrderedJson& object, const std::string& path) {
  LLM_TRY(std::string text, text_at(object, "arguments", path));
  if (text.empty()) return std::string("{}");
  if (json_levels(text) > kMostJsonLevels)
    return wrong_field(path + ".arguments", shown_json(text),
                       fmt::format("JSON of at most {} levels", kMostJsonLevels));
  if (parse_ordered_json(text).is_object()) return text;
  return wrong_field(path + ".arguments", shown_json(text), "the JSON of an object");
}

void add_call(RequestedChat& chat, OrderedJson call) {
  chat.unread.reset();
  chat.called[call["id"]] = call["function"]["name"];
  last_reply(chat)["tool_calls"].push_back(std::move(call));
}

void add_result(RequestedChat& chat, const std::string& id, std::string content) {
  chat.add("tool", std::move(content));
  OrderedJson& message = chat.messages.back();
  message["tool_call_id"] = id;
  if (const auto call = chat.called.find(id); call != chat.called.end())
    message["name"] = call->second;
}

Status read_each(const OrderedJson& list, const std::string& path, std::string_view what,
                 const std::function<Status(const OrderedJson&, const std::string& path)>& read) {
  if (!list.is_array())
    return wrong_field(path, shown_json(list), fmt::format("an array of {}", what));
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string place = at_index(path, i);
    if (!list[i].is_object()) return wrong_field(place, shown_json(list[i]), "an object");
    LLM_RETURN_IF_ERROR(read(list[i], place));
  }
  return Ok{};
}

}  // namespace llm
