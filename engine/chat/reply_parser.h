#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/chat/call_reader.h"
#include "engine/chat/reply_format.h"

namespace llm {

/// What a reply grows by.
struct ReplyPart {
  enum class Kind { kContent, kThought, kCall };
  Kind kind;
  std::string text;   ///< of content and thoughts
  FunctionCall call;  ///< complete
};

/// Takes a reply apart as it grows: content, thoughts, calls. What it makes of a text does not
/// depend on how that text was cut into pieces. A call that is none (no JSON, no known function) is
/// content, so nothing that the model wrote is lost but markers and white space around parts.
class ReplyParser {
 public:
  /// @param tools  OpenAI's list of functions, whose calls are looked for; null or empty: none. Its
  ///               schemas say which arguments of Call::kPairs are strings
  /// @param is_thinking  the prompt has begun a thought already
  /// @param most_calls  what follows the last of them is left out
  ReplyParser(const ReplyFormat& format, const OrderedJson& tools, bool is_thinking,
              std::size_t most_calls = 128);

  /// Cost: linear in the text, but for a call under way, which is read anew with each piece.
  std::vector<ReplyPart> push(std::string_view text);
  /// The reply has ended. @pre no push() follows
  std::vector<ReplyPart> finish();

 private:
  enum class State { kContent, kThought, kCall, kHeader };

  void run();
  bool content();
  bool thought();
  bool call();
  bool header();

  void add(ReplyPart::Kind kind, std::string_view text);
  void add_call(FunctionCall call);
  /// How much of `text`'s front is surely no beginning of one of the markers that are looked for.
  std::size_t safe_size(std::string_view text) const;
  std::size_t find(std::string_view marker) const;

  ReplyFormat format_;
  CallReader reader_;
  std::size_t calls_left_;
  State state_ = State::kContent;
  std::string pending_;
  std::string begun_;    ///< the marker of a call under way, for content that it turns out to be
  std::string spaces_;   ///< white space that is content if content follows
  std::string channel_;  ///< of Call::kChannels: the header of the message under way
  bool has_content_ = false;
  bool has_parts_ = false;  ///< thoughts or calls
  bool ended_ = false;
  std::vector<ReplyPart> parts_;
};

}  // namespace llm
