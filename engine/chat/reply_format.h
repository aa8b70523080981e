#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace llm {

/// How a model writes thoughts and calls of functions into a reply: the texts that stand around
/// them. White space at the ends of these texts means nothing.
struct ReplyFormat {
  enum class Call {
    kNone,
    kObject,    ///< {"name": "f", "arguments": {...}}
    kJson,      ///< f MIDDLE {...}
    kKeywords,  ///< f(k=v, ...)
    kPairs,     ///< f KEY_BEGIN k KEY_END v VALUE_END ... for each argument
    kElements,  ///< f KEY_BEGIN k KEY_END v VALUE_END k KEY_END ..., v in elements where it has
                ///< parts
    kChannels,  ///< gpt-oss: <|channel|>commentary to=functions.f <|message|>{...}<|call|>
  };

  std::string think_begin;  ///< empty: no thoughts
  std::string think_end;

  Call call = Call::kNone;
  std::string begin;  ///< before the first call; of kObject it may be empty: the reply is the call
  std::string between;  ///< a call and the next one; empty: there is one at most
  std::string end;      ///< after the last one
  std::vector<std::string> more_begins = {};  ///< marks that may stand before calls besides
  bool starts_in_call = false;                ///< the prompt ends with `begin`
  std::string content_begin;                ///< what then stands before content, in place of a name
  std::string name_key = "name";            ///< of kObject
  std::string arguments_key = "arguments";  ///< of kObject
  std::string middle;     ///< of kJson; of the two below it may stand after the name
  std::string key_begin;  ///< of kPairs and kElements, as the two below
  std::string key_end;
  std::string value_end;

  /// Nothing marks a call: it is the whole reply, and begins with that character.
  bool is_bare() const {
    return (call == Call::kObject && begin.empty()) || (call == Call::kKeywords && begin == "[");
  }
  char bare_begin() const { return call == Call::kObject ? '{' : '['; }

  bool knows_tools = false;   ///< the template writes what functions there are
  bool writes_calls = false;  ///< and calls; or calls alone, of functions told of elsewhere
  // How the template wants what it is given back.
  bool text_arguments = false;  ///< a call's arguments as a string of JSON, no object
  bool null_content = false;    ///< the content of a reply that has calls alone
};

/// What the template makes of a conversation. @param asks  for the assistant's reply
using RenderChat = std::function<Result<std::string>(const OrderedJson& messages,
                                                     const OrderedJson& tools, bool asks)>;

/// Finds it out from what a template writes of calls that are known. Where that is of no shape that
/// Call has, `call` is kNone. Where the template describes functions but writes no calls, the marks
/// of calls are those that its text has, or else the vocabulary.
/// @param jinja  the template's text, where the words around thoughts are looked for
/// @param ends  spellings that end a reply
/// @param marks  spellings of the vocabulary's control and user-defined tokens
ReplyFormat reply_format(std::string_view jinja, const RenderChat& render,
                         std::span<const std::string> ends, std::string_view marks = {});

/// The text of calls, for templates that would leave them out.
/// @param calls  as OpenAI's API has them; arguments are the text of a JSON object
/// @pre format.call is kObject or kKeywords
std::string text_of_calls(const ReplyFormat& format, const OrderedJson& calls);

/// A call as the format has it, with dots and words in capitals for what differs.
std::string call_example(const ReplyFormat& format);

/// Calls as models are told to write them whose template knows none: {"name": ..., "arguments":
/// ...} between <tool_call> and </tool_call>.
ReplyFormat usual_reply_format(std::string_view jinja);

}  // namespace llm
