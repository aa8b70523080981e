#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/json.h"
#include "engine/chat/reply_format.h"

namespace llm {

/// A call of a function, as a model wrote it.
struct FunctionCall {
  std::string name;
  std::string arguments;  ///< JSON of an object
};

/// Reads single calls out of a reply: what stands between ReplyFormat's begin and end.
class CallReader {
 public:
  /// @param format  its texts without white space at their ends
  /// @param tools  OpenAI's list of functions; null: none is known
  CallReader(const ReplyFormat& format, const OrderedJson& tools)
      : format_(format), tools_(tools) {}

  enum class Step {
    kDone,
    kNeedsMore,  ///< what is there may become a call
    kFailed,     ///< it is none: no JSON, or no known function
  };

  /// @param at  where the call begins; then where it ends. @param is_whole  no more text comes
  /// @param channel  the function, where the format has it elsewhere (Call::kChannels)
  Step read(std::string_view text, bool is_whole, const std::string& channel, std::size_t& at,
            FunctionCall& call) const;
  bool is_known(const std::string& name) const;

 private:
  Step read_object(std::string_view text, std::size_t& at, FunctionCall& call) const;
  Step read_named(std::string_view text, std::size_t& at, FunctionCall& call) const;
  Step read_pairs(std::string_view text, bool is_whole, std::size_t& at, FunctionCall& call) const;
  OrderedJson value_of(const std::string& function, const std::string& key, std::string text) const;

  ReplyFormat format_;
  OrderedJson tools_;
};

/// `text` without white space at its ends.
std::string_view without_spaces(std::string_view text);
std::string_view without_leading_spaces(std::string_view text);
/// Whether `text` may become one that starts with `marker`, which it does not yet.
bool may_become(std::string_view text, std::string_view marker);

}  // namespace llm
