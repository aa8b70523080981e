#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/chat/call_marks.h"
#include "engine/chat/call_reader.h"
#include "engine/chat/reply_format.h"
#include "engine/chat/reply_part.h"

namespace llm {

/// Takes a reply apart as it grows: content, thoughts, calls. What it makes of a text does not
/// depend on how that text was cut into pieces. A call that is none (no JSON, no known function) is
/// content, so nothing that the model wrote is lost but marks and white space around parts.
class ReplyParser {
 public:
  /// @param tools  OpenAI's list of functions, whose calls are looked for; null or empty: none. Its
  ///               schemas say which arguments of Call::kPairs are strings
  /// @param is_thinking  the prompt has begun a thought already
  /// @param most_calls  what follows the last of them is left out
  ReplyParser(const ReplyFormat& format, const OrderedJson& tools, bool is_thinking,
              std::size_t most_calls = 128);

  /// Cost: linear in the text.
  std::vector<ReplyPart> push(std::string_view text);
  /// The reply has ended. @pre no push() follows. @param is_cut  a limit ended it, not the model
  std::vector<ReplyPart> finish(bool is_cut = false);

 private:
  enum class State { kContent, kThought, kCall, kHeader };
  /// What stays in one place, for the reader refers to it.
  struct Fixed {
    ReplyFormat format;
    OrderedJson tools;
    CallMarks marks;
  };

  void run();
  void content(const Atom& atom);
  bool begins_bare(const Atom& atom);
  void thought(const Atom& atom);
  void call(const Atom& atom);
  void take_left();
  void header(const Atom& atom);
  void end_header();
  void begin_part();

  void add(ReplyPart::Kind kind, std::string_view text);
  std::vector<ReplyPart> parts();
  bool is_channels() const { return fixed_->format.call == ReplyFormat::Call::kChannels; }

  std::shared_ptr<const Fixed> fixed_;
  MarkLexer lexer_;
  CallReader reader_;
  std::size_t calls_left_;
  bool has_calls_ = false;   ///< a call has ended
  bool drops_left_ = false;  ///< of a call that a limit has cut
  State state_ = State::kContent;
  std::deque<Atom> atoms_;
  std::vector<Atom> fence_;  ///< that may stand around calls, with the word behind it
  std::string header_;       ///< of Call::kChannels
  std::string spaces_;       ///< white space that is content if content follows
  bool may_be_bare_ = true;  ///< nothing but white space has come
  bool has_content_ = false;
  bool has_parts_ = false;  ///< thoughts or calls
  std::vector<ReplyPart> parts_;
};

/// What becomes of a call whose arguments are not whole.
enum class UnfinishedCall {
  kContent,  ///< what the model wrote; it ended the reply itself
  kCall,     ///< a call with the arguments so far: a limit ended the reply
  kLeftOut,  ///< a limit ended the reply, and arguments can only be given as an object
};

/// The parts of a complete reply: each call is one kCall, neighbouring texts are one.
std::vector<ReplyPart> whole_parts(std::vector<ReplyPart> parts, UnfinishedCall unfinished);

}  // namespace llm
