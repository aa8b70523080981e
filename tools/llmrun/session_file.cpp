#include "tools/llmrun/session_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/utf8.h"
#include "tools/common/signals.h"

namespace llm {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchemaVersion = 1;

/// A string, or an array of bytes where the text is no UTF-8, which JSON cannot carry.
Json text_json(const std::string& text) {
  if (is_valid_utf8(text)) return text;
  Json bytes = Json::array();
  for (const char byte : text) bytes.push_back(static_cast<unsigned char>(byte));
  return bytes;
}

std::string text_of(const Json& json) {
  if (json.is_string()) return json.get<std::string>();
  std::string text;
  for (const auto byte : json.get<std::vector<std::uint8_t>>()) text += static_cast<char>(byte);
  return text;
}

std::string note_of(const Conversation& conversation) {
  Json turns = Json::array();
  for (const Conversation::Turn& turn : conversation.turns()) {
    turns.push_back({{"message", text_json(turn.message)},
                     {"reply", text_json(turn.reply)},
                     {"reply_ids", turn.reply_ids}});
  }
  const Json note = {{"schema_version", kSchemaVersion},
                     {"chat_template", chat_format_name(conversation.format())},
                     {"system", text_json(conversation.system())},
                     {"turns", std::move(turns)},
                     {"forgotten_turns", conversation.forgotten_turns()},
                     {"next_draw", conversation.next_draw()}};
  return note.dump();
}

struct Note {
  std::string format;
  Conversation::State state;
};

Result<Note> parse_note(std::string_view text, std::size_t n_vocab) {
  const auto malformed = [](std::string message) {
    return Error{.field = "conversation", .message = std::move(message)};
  };
  if (text.empty()) return malformed("found a prompt cache, need a saved conversation");
  Note note;
  try {
    const Json json = Json::parse(text);
    if (json.at("schema_version") != kSchemaVersion) {
      return Error{.code = ErrorCode::kUnsupported,
                   .field = "conversation",
                   .message = fmt::format("found schema version {}, need {}",
                                          json.at("schema_version").dump(), kSchemaVersion)};
    }
    note.format = json.at("chat_template").get<std::string>();
    note.state.system = text_of(json.at("system"));
    note.state.forgotten_turns = json.at("forgotten_turns").get<std::size_t>();
    note.state.next_draw = json.at("next_draw").get<std::uint64_t>();
    for (const Json& turn : json.at("turns")) {
      note.state.turns.push_back({.message = text_of(turn.at("message")),
                                  .reply = text_of(turn.at("reply")),
                                  .reply_ids = turn.at("reply_ids").get<std::vector<TokenId>>()});
    }
  } catch (const Json::exception& exception) {
    return malformed(fmt::format("found {}", exception.what()));
  }
  for (const Conversation::Turn& turn : note.state.turns) {
    for (const TokenId id : turn.reply_ids) {
      if (id < 0 || static_cast<std::size_t>(id) >= n_vocab)
        return malformed(fmt::format("found token {}, need 0..{}", id, n_vocab - 1));
    }
  }
  return note;
}

}  // namespace

Status save_session(const std::string& path, const Conversation& conversation,
                    const Sequence& sequence, const CacheIdentity& identity, bool with_values) {
  return PromptCache::write(path, sequence, with_values ? sequence.position() : 0, identity,
                            note_of(conversation), with_values);
}

Result<std::unique_ptr<Conversation>> load_session(const std::string& path, ChatFormat format,
                                                   Sequence& sequence,
                                                   const CacheIdentity& identity) {
  guard_mapped_file(path);
  LLM_TRY(const PromptCache cache, PromptCache::open(path));
  LLM_RETURN_IF_ERROR(cache.check(identity));
  auto parsed = parse_note(cache.note(), sequence.n_vocab());
  if (!parsed.ok()) return in_file(parsed.error(), path);
  Note& note = *parsed;
  if (note.format != chat_format_name(format)) {
    return Error{.code = ErrorCode::kIntegrity,
                 .field = "--chat-template",
                 .message = fmt::format("found a conversation in {}, need one in {}", note.format,
                                        chat_format_name(format)),
                 .file = path};
  }
  sequence.truncate(0);
  const bool can_hold = sequence.options().use_cache && cache.stored() <= sequence.context();
  if (can_hold) LLM_RETURN_IF_ERROR(cache.restore(sequence));
  auto conversation = std::make_unique<Conversation>(sequence, format);
  const std::vector<TokenId> held(sequence.tokens().begin(), sequence.tokens().end());
  LLM_RETURN_IF_ERROR(conversation->restore(std::move(note.state), held));
  return conversation;
}

}  // namespace llm
