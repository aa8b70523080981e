#include "engine/chat/mark_lexer.h"

#include <algorithm>

#include "engine/chat/call_reader.h"

namespace llm {

void MarkLexer::add(std::string_view mark, unsigned roles) {
  mark = without_spaces(mark);
  if (mark.empty()) return;
  const auto known = std::ranges::find(marks_, mark, &Mark::text);
  if (known != marks_.end())
    known->roles |= roles;
  else
    marks_.push_back({std::string(mark), roles});
}

void MarkLexer::push(std::string_view text, std::deque<Atom>& atoms) {
  for (const char c : text) {
    held_ += c;
    settle(false, atoms);
  }
}

void MarkLexer::finish(std::deque<Atom>& atoms) { settle(true, atoms); }

bool MarkLexer::is_within(MarkRole role) const {
  return std::ranges::any_of(marks_, [&](const Mark& mark) {
    return (mark.roles & role) != 0 && 2 * held_.size() >= mark.text.size() &&
           mark.text.starts_with(held_);
  });
}

void MarkLexer::settle(bool is_whole, std::deque<Atom>& atoms) {
  while (!held_.empty()) {
    int found = -1;
    std::size_t size = 0;
    for (std::size_t i = 0; i < marks_.size(); ++i) {
      const std::string& mark = marks_[i].text;
      if (mark.size() > held_.size()) {
        if (!is_whole && mark.starts_with(held_)) return;
      } else if (mark.size() > size && held_.starts_with(mark)) {
        found = static_cast<int>(i);
        size = mark.size();
      }
    }
    atoms.push_back({found, found < 0 ? held_.front() : '\0'});
    held_.erase(0, found < 0 ? 1 : size);
  }
}

}  // namespace llm
