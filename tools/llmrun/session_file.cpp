#include "tools/llmrun/session_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "base/json.h"
#include "base/json_members.h"
#include "base/shown_text.h"
#include "base/utf8.h"
#include "tools/common/tool.h"

namespace llm {
namespace {

constexpr std::size_t kSchemaVersion = 3;
constexpr std::size_t kWithAdapters = 4;  ///< the version that has them, for who does not know them
constexpr std::size_t kMostBytes = std::size_t{1} << 30;
constexpr std::size_t kMost = INT64_MAX;  // of turns and draws; no conversation comes near

/// A string, or an array of bytes where the text is no UTF-8, which JSON cannot carry.
OrderedJson text_json(const std::string& text) {
  if (is_valid_utf8(text)) return text;
  OrderedJson bytes = OrderedJson::array();
  for (const char byte : text) bytes.push_back(static_cast<unsigned char>(byte));
  return bytes;
}

/// Those in use, as "SHA-256 at SCALE", in their order.
std::vector<std::string> adapters_of(const Sequence& sequence) {
  std::vector<std::string> adapters;
  const std::vector<float>& scales = sequence.options().adapters;
  for (std::size_t i = 0; i < scales.size(); ++i)
    if (scales[i] != 0)
      adapters.push_back(
          fmt::format("{} at {}", sequence.model().adapters()[i]->file_sha256(), scales[i]));
  return adapters;
}

std::string session_json(const Conversation& conversation, const Sequence& sequence) {
  OrderedJson turns = OrderedJson::array();
  for (const Conversation::Turn& turn : conversation.turns()) {
    turns.push_back({{"message", text_json(turn.message)},
                     {"reply", text_json(turn.reply)},
                     {"reply_ids", turn.reply_ids}});
  }
  const std::optional<std::string>& system = conversation.system();
  const std::vector<std::string> adapters = adapters_of(sequence);
  OrderedJson json = {{"schema_version", adapters.empty() ? kSchemaVersion : kWithAdapters},
                      {"model_sha256", sequence.model().file_sha256()},
                      {"chat_template", conversation.style().name()},
                      {"system", system ? text_json(*system) : OrderedJson()},
                      {"turns", std::move(turns)},
                      {"forgotten_turns", conversation.forgotten_turns()},
                      {"next_draw", conversation.next_draw()}};
  if (!adapters.empty()) json["adapters"] = adapters;
  return json_text(json) + "\n";
}

struct SavedSession {
  std::string model_sha256;
  std::string chat_template;
  std::vector<std::string> adapters;
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

Result<SavedSession> parse_session(std::string_view text, std::size_t n_vocab) {
  const auto parsed = parse_json_object(text);
  if (!parsed.ok() || !parsed->contains("schema_version"))
    return malformed("", "found no session, need a file that llmrun saved");
  const Json& json = *parsed;
  const JsonMembers members(json, "");
  LLM_TRY(const std::size_t version, members.count("schema_version", 1, kMost));
  if (version != kSchemaVersion && version != kWithAdapters) {
    return Error{ErrorCode::kUnsupported, "schema_version",
                 fmt::format("found {}, need {} or {}", version, kSchemaVersion, kWithAdapters)};
  }
  SavedSession note;
  if (version == kWithAdapters) {
    LLM_TRY(const Json* adapters, members.list("adapters"));
    for (const Json& adapter : *adapters) {
      if (!adapter.is_string())
        return malformed_json(fmt::format("adapters[{}]", note.adapters.size()),
                              shown_json(adapter), "a string");
      note.adapters.push_back(adapter.get<std::string>());
    }
  }
  LLM_TRY(note.model_sha256, members.text("model_sha256"));
  LLM_TRY(note.chat_template, members.text("chat_template"));
  LLM_TRY(const Json* system, members.member("system", "a text or null"));
  if (!system->is_null()) {
    LLM_TRY(note.state.system, read_text(members, "system"));
  }
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

Status save_session(const std::string& path, const Conversation& conversation,
                    const Sequence& sequence, FileLock* held) {
  const std::string json = session_json(conversation, sequence);
  return write_file_atomically(path, std::as_bytes(std::span(json)), held);
}

Result<std::unique_ptr<Conversation>> load_session(const std::string& path,
                                                   std::shared_ptr<const ChatStyle> style,
                                                   Sequence& sequence) {
  LLM_TRY(const std::string text, read_text_file(path, kMostBytes));
  LLM_TRY(SavedSession saved, in_file(parse_session(text, sequence.n_vocab()), path));
  const std::string& model = sequence.model().file_sha256();
  if (saved.model_sha256 != model) {
    return in_file(
        Error{ErrorCode::kIntegrity, "model",
              fmt::format("found SHA-256 {}, need {}", shown(saved.model_sha256), model)},
        path);
  }
  if (const auto adapters = adapters_of(sequence); saved.adapters != adapters) {
    const auto shown_list = [](const std::vector<std::string>& list) {
      return list.empty() ? "none" : shown(fmt::format("{}", fmt::join(list, ", ")));
    };
    return in_file(Error{ErrorCode::kIntegrity, "--lora",
                         fmt::format("found a conversation with the adapters {}, need one with {}",
                                     shown_list(saved.adapters), shown_list(adapters))},
                   path);
  }
  if (saved.chat_template != style->name()) {
    return in_file(Error{ErrorCode::kIntegrity, "--chat-template",
                         fmt::format("found a conversation with the template {}, need one with {}",
                                     shown(saved.chat_template), style->name())},
                   path);
  }
  return open_conversation(std::move(saved.state), std::move(style), sequence);
}

Result<std::unique_ptr<Conversation>> open_conversation(Conversation::State state,
                                                        std::shared_ptr<const ChatStyle> style,
                                                        Sequence& sequence) {
  sequence.truncate(0);
  auto conversation = std::make_unique<Conversation>(sequence, std::move(style));
  LLM_RETURN_IF_ERROR(conversation->restore(std::move(state)));
  LLM_TRY(const auto ids, conversation->text());
  sequence.adopt(std::span(ids).first(std::min(ids.size(), sequence.context())));
  return conversation;
}

}  // namespace llm
