#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "tools/llmserve/conversations.h"

namespace llm {

// What readers of conversations have in common. Errors: kUsage naming the field, below `path`.

/// A member that must be a text.
Result<std::string> text_at(const OrderedJson& object, const char* name, const std::string& path);
/// The member "type" of what must be an object.
Result<std::string> type_of(const OrderedJson& object, const std::string& path);
/// A string, null, or parts of these types, whose texts are joined.
Result<std::string> text_of(const OrderedJson& content, const std::string& path,
                            std::initializer_list<std::string_view> types);
/// Reads each element of a list, which must be an object. @param what  the list is of
Status read_each(const OrderedJson& list, const std::string& path, std::string_view what,
                 const std::function<Status(const OrderedJson&, const std::string& path)>& read);

/// Arguments as text, which must be an object's JSON; none is an empty object.
Result<std::string> arguments_at(const OrderedJson& object, const std::string& path);
/// A call as OpenAI's messages have it.
OrderedJson call_json(std::string id, std::string name, std::string arguments);

/// Adds a call to the last message where it is the assistant's, else to a new one of theirs.
void add_call(RequestedChat& chat, OrderedJson call);
/// Adds the result of the call of that id, whose function it names.
void add_result(RequestedChat& chat, const std::string& id, std::string content);
/// Adds a function. @param schema_name  of the member that describes its arguments
Status add_tool(const OrderedJson& function, const char* schema_name, const std::string& path,
                RequestedChat& chat);

}  // namespace llm
