#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "tools/llmserve/conversations/conversations.h"

namespace llm {

// What readers of conversations have in common. Errors: kUsage naming the field, below `path`.

/// A member as it stands there, null where there is none: parts lie in parts, so that a copy of
/// each would copy what is deepest once for each level.
const OrderedJson& member_at(const OrderedJson& object, std::string_view name);
/// A member that must be a text.
Result<std::string> text_at(const OrderedJson& object, const char* name, const std::string& path);
/// The member "type" of what must be an object.
Result<std::string> type_of(const OrderedJson& object, const std::string& path);
/// Whose text it is, and the conversation that it becomes part of.
struct TextPlace {
  std::string_view role;  ///< "tool": the result of a call
  RequestedChat& chat;
};
/// A string, null, or parts, whose texts are joined. What models here do not read (pictures,
/// sounds, files) becomes a text that says so; in the user's last message it is an error, which
/// check_chat() tells. Other parts are left out where they are not the user's.
Result<std::string> text_of(const OrderedJson& content, const std::string& path,
                            const TextPlace& place);
/// The text of one part.
Result<std::string> text_of_part(const OrderedJson& part, const std::string& path,
                                 const TextPlace& place);
/// "[image: this model reads text only]", which it is an error to ask about. @param what  "image"
std::string unreadable(std::string_view what, const std::string& path, const TextPlace& place);
/// Reads each element of a list, which must be an object. @param what  the list is of
Status read_each(const OrderedJson& list, const std::string& path, std::string_view what,
                 const std::function<Status(const OrderedJson&, const std::string& path)>& read);

/// Arguments as text, which must be an object's JSON; none is an empty object.
Result<std::string> arguments_at(const OrderedJson& object, const std::string& path);
/// The argument of functions that take one text, and the arguments with it.
inline constexpr const char* kTextArgument = "input";
std::string text_arguments(std::string input);
/// The name by which the model knows the function of a call or choice: with its namespace.
Result<std::string> called_name(const OrderedJson& call, const std::string& path);
/// A call as OpenAI's messages have it.
OrderedJson call_json(std::string id, std::string name, std::string arguments);

/// Adds a call to the last message where it is the assistant's, else to a new one of theirs.
void add_call(RequestedChat& chat, OrderedJson call);
/// Adds the result of the call of that id, whose function it names.
void add_result(RequestedChat& chat, const std::string& id, std::string content);
/// Adds a function. @param schema_name  of the member that describes its arguments
/// @param origin  but for the name
Status add_tool(const OrderedJson& function, const char* schema_name, const std::string& path,
                RequestedChat& chat, ToolOrigin origin = {});

}  // namespace llm
