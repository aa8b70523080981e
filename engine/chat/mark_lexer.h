#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace llm {

/// What a mark of a reply is for, as bits.
enum MarkRole : unsigned {
  kBeginsCall = 1,  ///< a call, or what is around calls
  kEndsCall = 2,
  kBeginsKey = 4,  ///< an argument's name, as the two below
  kEndsKey = 8,
  kBeginsValue = 16,
  kEndsValue = 32,
  kBeginsThought = 64,
  kEndsThought = 128,
  kFence = 256,    ///< ``` around code
  kHeader = 512,   ///< of gpt-oss's messages
  kMessage = 1024  ///< the end of such a header
};

/// A piece of a reply: a mark, or a byte of text.
struct Atom {
  int mark = -1;  ///< below 0: it is text
  char c = 0;
};

/// Takes a text apart into marks and bytes as it comes, the longest mark that fits first. Cost:
/// linear in the text times the marks.
class MarkLexer {
 public:
  struct Mark {
    std::string text;
    unsigned roles = 0;
  };

  /// Adds a mark, or roles to one that is there. White space around it does not belong to it.
  void add(std::string_view mark, unsigned roles);
  void push(std::string_view text, std::deque<Atom>& atoms);
  /// No more text comes.
  void finish(std::deque<Atom>& atoms);
  /// Half of a mark with that role has come, at least, and its end has not.
  bool is_within(MarkRole role) const;

  unsigned roles(const Atom& atom) const {
    return atom.mark < 0 ? 0 : marks_[static_cast<std::size_t>(atom.mark)].roles;
  }
  std::string_view text(const Atom& atom) const {
    return atom.mark < 0 ? std::string_view(&atom.c, 1)
                         : std::string_view(marks_[static_cast<std::size_t>(atom.mark)].text);
  }
  template <typename Atoms>
  std::string text_of(const Atoms& atoms) const {
    std::string all;
    for (const Atom& atom : atoms) all += text(atom);
    return all;
  }

 private:
  /// Takes what stands for itself from the front of held_. @param is_whole  nothing follows
  void settle(bool is_whole, std::deque<Atom>& atoms);

  std::vector<Mark> marks_;
  std::string held_;  ///< what may be the beginning of a mark
};

}  // namespace llm
