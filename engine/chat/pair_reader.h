#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/chat/argument_types.h"
#include "engine/chat/call_marks.h"
#include "engine/chat/reply_format.h"

namespace llm {

/// Gives the text of an argument's value as JSON: of a string as it comes, of others when it is
/// complete.
class ValueText {
 public:
  /// @param has_lines  a line break at each end is layout
  void begin(ArgumentTypes types, bool has_lines);
  void add(std::string_view text, std::string& json);
  void finish(std::string& json);
  /// It began with a line break that is layout, and has no such one at its end.
  bool lacks_line_end() const { return begins_line_ && !ends_line(); }

 private:
  bool ends_line() const;
  bool is_surely_string() const;
  void put(char c, std::string& json);
  void give(std::string& json);

  ArgumentTypes types_;
  bool has_lines_ = false;
  bool is_streamed_ = false;  ///< it is a string, whose beginning was given
  bool is_first_ = true;      ///< nothing but blanks so far, which may be layout
  bool begins_line_ = false;
  std::string text_;  ///< not given yet: a streamed one's line break, all of another
};

/// Reads the arguments of a call that are marked one by one, from the first KEY_BEGIN on. A value
/// ends at a VALUE_END only where, after white space, an argument, the call's end, another call or
/// the reply's end follows. Text that may be the rest of a value is held: where marks of an end
/// come again behind it, and no call between, it was.
class PairReader {
 public:
  PairReader(const ReplyFormat& format, const CallMarks& marks, const OrderedJson& tools)
      : format_(format), marks_(marks), tools_(tools) {}

  enum class Step {
    kMore,
    kDone,    ///< the call is whole; left() follows it
    kFailed,  ///< no argument's name
  };
  void begin(const std::string& function);
  /// @param json  pieces of the arguments are appended to it
  Step take(const Atom& atom, std::string& json);
  /// The reply has ended. @return whether the arguments are whole
  bool finish(bool is_cut, std::string& json);
  std::vector<Atom> left();

 private:
  enum class State { kKey, kKeyEnd, kValue, kClose, kNextKey, kNextKeyEnd, kChain, kTail, kHead };

  Step value(const Atom& atom, std::string& json);
  Step tail(const Atom& atom);
  Step key(const Atom& atom, std::string& json);
  Step close(const Atom& atom, std::string& json);
  Step next_key(const Atom& atom, std::string& json);
  Step chain(const Atom& atom, std::string& json);
  Step head(const Atom& atom, std::string& json);
  Step go_back(const Atom& atom, std::string& json);
  void accept_key(std::string& json);
  void end_value(std::size_t close, std::string& json);
  Step end_call(std::size_t close, std::size_t end, std::string& json);
  bool is_key() const;
  std::string held_text(std::size_t from, std::size_t to) const;
  unsigned roles(const Atom& atom) const { return marks_.lexer.roles(atom); }

  const ReplyFormat& format_;
  const CallMarks& marks_;
  const OrderedJson& tools_;
  State state_ = State::kKey;
  State head_from_ = State::kClose;
  OrderedJson parameters_;
  std::vector<std::string> keys_;
  std::string key_;
  std::string name_;  ///< of a call that may follow
  ValueText value_;
  std::vector<Atom> held_;     ///< from what may be the value's end on
  std::size_t close_ = 0;      ///< where in it the last such end begins
  std::size_t head_ = 0;       ///< where a call that may follow begins
  std::size_t end_close_ = 0;  ///< the end that the call has if nothing else comes
  std::size_t end_ = 0;        ///< what follows it; 0: there is none yet
  bool lacks_close_ = false;   ///< held_ begins with the call's end, not the value's
};

}  // namespace llm
