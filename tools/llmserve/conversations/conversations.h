#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/json.h"
#include "base/result.h"
#include "base/seeded_hash.h"
#include "engine/chat/reply_format.h"
#include "tools/llmserve/conversations/json_fields.h"
#include "tools/llmserve/conversations/request_notes.h"

namespace llm {

/// A function that clients call otherwise than the model does, or whose arguments they have in
/// another shape.
struct ToolOrigin {
  std::string name = {};        ///< the client's
  std::string name_space = {};  ///< in which that name stands; empty: none
  bool takes_text = false;      ///< one text in place of arguments: the argument `input`
};
/// By the names that the model knows; others are called the same everywhere.
using ToolOrigins = std::map<std::string, ToolOrigin>;

/// Which functions a reply must or may call.
struct ToolChoice {
  enum class Kind { kAuto, kNone, kRequired, kNamed };
  Kind kind = Kind::kAuto;
  std::string name = {};  ///< of kNamed
  /// The functions that may be called at all; none: all of them.
  std::optional<std::unordered_set<std::string, SeededHash>> allowed = {};
};

/// A conversation as every API's is read: OpenAI's messages, whose content is text or null and
/// whose calls have their arguments as text; and OpenAI's list of functions, null where there is
/// none.
struct RequestedChat {
  OrderedJson messages = OrderedJson::array();
  OrderedJson tools = {};
  ToolChoice choice = {};
  bool parallel_calls = true;
  OrderedJson variables = OrderedJson::object();  ///< for the template
  ToolOrigins origins = {};
  /// The reply's beginning is the last message, which is the assistant's: what is asked for is how
  /// it goes on.
  bool continues_reply = false;
  RequestNotes notes = {};
  /// The user's last message shows what no model here reads, and nobody has answered to it.
  std::optional<Error> unread = {};
  /// The functions of its calls, by their ids; of an id twice, the last one's.
  std::unordered_map<std::string, std::string, SeededHash> called = {};
  std::unordered_set<std::string, SeededHash> tool_names = {};

  void add(std::string_view role, std::string content);
  /// The system message: before all others.
  void add_system(std::string content);
};

// The parts of bodies that make one. Each table describes what its reader takes. Errors: kUsage
// naming the field.

/// Of /v1/chat/completions. @param path  "messages"
Status read_chat_messages(const OrderedJson& list, const std::string& path, RequestedChat& chat);
JsonSchema chat_message_schema();
/// @param is_flat  as /v1/responses has them: the function's members stand beside the type
Status read_tools(const OrderedJson& list, const std::string& path, bool is_flat,
                  RequestedChat& chat);
JsonSchema tools_schema(bool is_flat);
Status read_tool_choice(const OrderedJson& choice, const std::string& path, RequestedChat& chat);

/// Of /v1/responses: a text or a list of items. @param path  "input"
Status read_response_input(const OrderedJson& input, const std::string& path, RequestedChat& chat);

/// Of /api/chat: calls have no ids and their arguments as an object; a result names its function.
Status read_ollama_messages(const OrderedJson& list, const std::string& path, RequestedChat& chat);

/// Of /v1/messages. Functions have `input_schema`, the choice is {"type": ...}.
Status read_anthropic_messages(const OrderedJson& list, const std::string& path,
                               RequestedChat& chat);
/// A text or a list of texts.
Status read_anthropic_system(const OrderedJson& system, const std::string& path,
                             RequestedChat& chat);
Status read_anthropic_tools(const OrderedJson& list, const std::string& path, RequestedChat& chat);
Status read_anthropic_choice(const OrderedJson& choice, const std::string& path,
                             RequestedChat& chat);

/// What every API asks of it: functions that are chosen exist, there is a message, and the user's
/// last one is text. Functions that shall not be called are left out.
/// @param path  where the messages stand
Status check_chat(RequestedChat& chat, const std::string& path);

struct ChatRoles;

/// Makes it what the template takes: messages where it has room for them (place_messages()), calls
/// with arguments as it wants them; where the template does not know of functions, texts that say
/// the same (usual_reply_format()).
void adapt_chat(const ReplyFormat& format, const ChatRoles& roles, RequestedChat& chat);

}  // namespace llm
