#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/chat/call_marks.h"
#include "engine/chat/element_reader.h"
#include "engine/chat/object_reader.h"
#include "engine/chat/pair_reader.h"
#include "engine/chat/reply_format.h"
#include "engine/chat/reply_part.h"
#include "engine/chat/value_reader.h"

namespace llm {

/// Reads calls as they come, one reader for every form. White space, brackets of lists, fences and
/// marks may stand between calls in any number; a call is
///
///   NAME {arguments}     NAME (key=value, ...)     {"name": NAME, "arguments": {...}}
///   NAME KEY_BEGIN key KEY_END value VALUE_END ...     NAME <key>value</key> ...
///
/// and begins where its function is known and its arguments have begun: from there on they are
/// given as they come. What goes no further before is no call, and given back.
class CallReader {
 public:
  /// @param marks  of the format; outlives this, as tools do. @param tools  OpenAI's list
  CallReader(const ReplyFormat& format, const CallMarks& marks, const OrderedJson& tools)
      : format_(format),
        marks_(marks),
        tools_(tools),
        object_(format),
        pairs_(format, marks, tools),
        elements_(format, marks, tools) {}

  /// A mark that begins calls. @param is_fenced  a fence stands before it
  void begin(const Atom& mark, bool is_fenced);
  /// The reply is the call, if anything. @param is_sure  its arguments need not wait for the end
  void begin_bare(bool is_sure);
  /// The name is the next thing, or known.
  void begin_name() { restart(State::kName); }
  void begin_arguments(const std::string& name);

  enum class Step {
    kTaken,
    kAgain,  ///< a call has ended, and left() is to be taken
    kOver,   ///< left() is no part of a call, with that atom
  };
  Step take(const Atom& atom, std::vector<ReplyPart>& parts);
  /// The reply has ended, and left() is to be taken, if anything; then this again.
  /// @param is_cut  by a limit, not by the model
  void finish(bool is_cut, std::vector<ReplyPart>& parts);
  /// What is no part of a call. @param is_text  its first atom is text, even if it is a mark
  std::vector<Atom> left(bool& is_text);
  /// A mark that ends calls is still due.
  bool is_open() const { return is_open_; }
  void close() { is_open_ = false; }
  bool is_known(std::string_view name) const { return function_of(tools_, name) != nullptr; }

 private:
  enum class State { kOpen, kName, kMiddle, kObject, kArguments, kPairs, kBroken, kAfter, kTag };

  void restart(State state);
  /// These take an atom. @return false: it is no part of a call
  bool handle(const Atom& atom);
  bool open(const Atom& atom);
  bool name(const Atom& atom);
  bool middle(const Atom& atom);
  bool object(const Atom& atom);
  bool arguments(const Atom& atom);
  bool pairs(const Atom& atom);
  bool broken(const Atom& atom);
  bool after(const Atom& atom);
  bool tag(const Atom& atom);

  /// The declared function that is meant; empty: none.
  std::string declared(std::string_view name) const;
  void begin_call();
  void add_arguments(std::string text);
  void end_call(bool is_whole);
  bool give_up();  ///< no call: false
  unsigned roles(const Atom& atom) const { return marks_.lexer.roles(atom); }
  bool has_elements() const { return format_.call == ReplyFormat::Call::kElements; }
  bool is_pairs() const { return format_.call == ReplyFormat::Call::kPairs || has_elements(); }

  const ReplyFormat& format_;
  const CallMarks& marks_;
  const OrderedJson& tools_;
  ObjectReader object_;
  PairReader pairs_;
  ElementReader elements_;
  ValueReader value_;

  State state_ = State::kOpen;
  std::vector<Atom> raw_;  ///< of the call under way, or behind the last one
  std::string name_;
  std::string middle_;  ///< between name and arguments
  std::string tag_;     ///< around a bare call
  FunctionCall call_;
  bool is_begun_ = false;  ///< the call has been told of
  bool has_calls_ = false;
  bool is_open_ = false;  ///< marks have begun calls
  bool is_list_ = false;  ///< names may follow each other
  bool is_fenced_ = false;
  bool is_bare_ = false;  ///< nothing but calls may be in the reply
  bool is_sure_ = true;   ///< parts need not be held
  bool is_text_ = false;
  bool is_again_ = false;
  std::vector<ReplyPart>* parts_ = nullptr;
  std::vector<ReplyPart> held_;  ///< of a bare call, which may still be none
  std::vector<Atom> all_;        ///< of it
};

/// `text` without white space at its ends.
std::string_view without_spaces(std::string_view text);
std::string_view without_leading_spaces(std::string_view text);

}  // namespace llm
