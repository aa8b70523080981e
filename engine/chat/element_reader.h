#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/chat/call_marks.h"
#include "engine/chat/pair_reader.h"
#include "engine/chat/reply_format.h"

namespace llm {

/// Reads the arguments of a call that are elements, from the first KEY_BEGIN on. A value is text,
/// or elements: of the members of an object, or each named "item", of an array. An element ends at
/// a VALUE_END only where its own name follows and, after white space, another mark of the form;
/// what else is there is text.
class ElementReader {
 public:
  using Step = PairReader::Step;

  ElementReader(const ReplyFormat& format, const CallMarks& marks, const OrderedJson& tools)
      : format_(format), marks_(marks), tools_(tools) {}

  void begin(const std::string& function);
  /// @param json  pieces of the arguments are appended to it
  Step take(const Atom& atom, std::string& json);
  /// The reply has ended. @return whether the arguments are whole
  bool finish(bool is_cut, std::string& json);
  /// What follows the call.
  std::vector<Atom> left();

 private:
  enum class State { kText, kName, kCloseName, kClosed };
  struct Level {
    std::string name;
    const OrderedJson* schema;  ///< null: not known
    char bracket = 0;           ///< that it was opened with; 0: nothing has come, or text
    bool has_items = false;
  };

  Step text(const Atom& atom, std::string& json);
  Step name(const Atom& atom, std::string& json);
  Step closed(const Atom& atom, std::string& json);
  void open(std::string& json);
  void close(std::string& json);
  /// What was held is text of the value, and `atom` comes again.
  Step give_back(const Atom& atom, std::string& json);
  void add(const Atom& atom, std::string& json);
  bool may_have_parts() const;
  char bracket_of(std::string_view first) const;
  unsigned roles(const Atom& atom) const { return marks_.lexer.roles(atom); }

  const ReplyFormat& format_;
  const CallMarks& marks_;
  const OrderedJson& tools_;
  State state_ = State::kName;
  OrderedJson parameters_;
  std::vector<Level> levels_;  ///< the arguments, and what is open in them
  ValueText value_;
  bool has_text_ = false;   ///< of the innermost value, more than white space
  std::string blanks_;      ///< of it, before anything else
  std::string name_;        ///< in a mark
  std::vector<Atom> held_;  ///< from what may be a mark on
};

}  // namespace llm
