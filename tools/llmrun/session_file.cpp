#include "tools/llmrun/session_file.h"

#include <fmt/core.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/json_members.h"
#include "base/shown_text.h"
#include "base/utf8.h"

namespace llm {
namespace {

// In version 1 an empty system message was none.
constexpr std::size_t kSchemaVersion = 2;
constexpr std::size_t kMost = INT64_MAX;  // of turns and draws; no conversation comes near

/// A string, or an array of bytes where the text is no UTF-8, which JSON cannot carry.
OrderedJson text_json(const std::string& text) {
  if (is_valid_utf8(text)) return text;
  OrderedJson bytes = OrderedJson::array();
  for (const char byte : text) bytes.push_back(static_cast<unsigned char>(byte));
  return bytes;
}

std::string note_of(const Conversation& conversation) {
  OrderedJson turns = OrderedJson::array();
  for (const Conversation::Turn& turn : conversation.turns()) {
    turns.push_back({{"message", text_json(turn.message)},
                     {"reply", text_json(turn.reply)},
                     {"reply_ids", turn.reply_ids}});
  }
  const std::optional<std::string>& system = conversation.system();
  const OrderedJson note = {{"schema_version", kSchemaVersion},
                            {"chat_template", conversation.style().name()},
                            {"system", system ? text_json(*system) : OrderedJson()},
                            {"turns", std::move(turns)},
                            {"forgotten_turns", conversation.forgotten_turns()},
                            {"next_draw", conversation.next_draw()}};
  return json_text(note);
}

struct Note {
  std::string chat_template;
  Conversation::State state;
};

/// What text_json() made.
Result<std::string> read_text(const JsonMembers& members, const char* key) {
  constexpr const char* kRule = "a string or an array of bytes";
  LLM_TRY(const Json* value, members.member(key, kRule));
  if (value->is_string()) return value->get<std::string>();
  if (!value->is_array()) return malformed_json(members.field(key), shown_json(*value), kRule);
  std::string text;
  for (const Json& byte : *value) {
    if (!byte.is_number_unsigned() || byte.get<std::uint64_t>() > UINT8_MAX) {
      return malformed_json(fmt::format("{}[{}]", members.field(key), text.size()),
                            shown_json(byte), "an integer in 0..255");
    }
    text += static_cast<char>(byte.get<std::uint8_t>());
  }
  return text;
}

Result<std::vector<TokenId>> read_ids(const JsonMembers& members, const char* key,
                                      std::size_t n_vocab) {
  LLM_TRY(const Json* values, members.list(key));
  std::vector<TokenId> ids;
  for (const Json& id : *values) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= n_vocab) {
      return malformed_json(fmt::format("{}[{}]", members.field(key), ids.size()), shown_json(id),
                            fmt::format("a token in 0..{}", n_vocab - 1));
    }
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

Result<Conversation::Turn> read_turn(const Json& json, const std::string& field,
                                     std::size_t n_vocab) {
  if (!json.is_object()) return malformed_json(field, shown_json(json), "an object");
  const JsonMembers members(json, field);
  Conversation::Turn turn;
  LLM_TRY(turn.message, read_text(members, "message"));
  LLM_TRY(turn.reply, read_text(members, "reply"));
  LLM_TRY(turn.reply_ids, read_ids(members, "reply_ids", n_vocab));
  return turn;
}

Result<Note> parse_note(std::string_view text, std::size_t n_vocab) {
  if (text.empty()) return malformed_json("conversation", "a prompt cache", "a saved conversation");
  LLM_TRY(const Json json, parse_json_object(text));
  const JsonMembers members(json, "");
  LLM_TRY(const std::size_t version, members.count("schema_version", 1, kMost));
  if (version > kSchemaVersion) {
    return Error{ErrorCode::kUnsupported, "schema_version",
                 fmt::format("found {}, need 1..{}", version, kSchemaVersion)};
  }
  Note note;
  LLM_TRY(note.chat_template, members.text("chat_template"));
  LLM_TRY(const Json* system, members.member("system", "a text or null"));
  if (!system->is_null()) {
    LLM_TRY(note.state.system, read_text(members, "system"));
  }
  if (version == 1 && note.state.system == "") note.state.system.reset();
  LLM_TRY(note.state.forgotten_turns, members.count("forgotten_turns", 0, kMost));
  LLM_TRY(note.state.next_draw, members.count("next_draw", 0, kMost));
  LLM_TRY(const Json* turns, members.list("turns"));
  for (const Json& turn : *turns) {
    const std::string field = fmt::format("turns[{}]", note.state.turns.size());
    LLM_TRY(auto read, read_turn(turn, field, n_vocab));
    note.state.turns.push_back(std::move(read));
  }
  return note;
}

}  // namespace

Status save_session(const std::string& path, const Conversation& conversation, Sequence& sequence,
                    const CacheIdentity& identity, bool with_values, FileLock* held) {
  return PromptCache::write(path, sequence, with_values ? sequence.position() : 0, identity,
                            note_of(conversation), with_values, held);
}

Result<std::unique_ptr<Conversation>> load_session(const std::string& path,
                                                   std::shared_ptr<const ChatStyle> style,
                                                   Sequence& sequence,
                                                   const CacheIdentity& identity) {
  LLM_TRY(const PromptCache cache, PromptCache::open(path));
  LLM_RETURN_IF_ERROR(cache.check(identity));
  auto parsed = parse_note(cache.note(), sequence.n_vocab());
  if (!parsed.ok()) return in_file(parsed.error(), path);
  Note& note = *parsed;
  if (note.chat_template != style->name()) {
    return in_file(Error{ErrorCode::kIntegrity, "--chat-template",
                         fmt::format("found a conversation with the template {}, need one with {}",
                                     shown(note.chat_template), style->name())},
                   path);
  }
  sequence.truncate(0);
  const bool can_hold = sequence.options().use_cache && cache.stored() <= sequence.context();
  if (can_hold) LLM_RETURN_IF_ERROR(cache.restore(sequence));
  auto conversation = std::make_unique<Conversation>(sequence, std::move(style));
  const std::vector<TokenId> held(sequence.tokens().begin(), sequence.tokens().end());
  LLM_RETURN_IF_ERROR(conversation->restore(std::move(note.state), held));
  return conversation;
}

}  // namespace llm
