#include "tools/llmserve/conversations/request_notes.h"

#include <algorithm>

namespace llm {
namespace {

constexpr std::size_t kMostNotes = 64;
constexpr std::size_t kMostNoteName = 60;
constexpr std::size_t kMostHeader = 1024;

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-.[]").find(c) != std::string_view::npos;
}

}  // namespace

void RequestNotes::ignore(std::string_view field, std::string_view what) { add(field, what, true); }

void RequestNotes::change(std::string_view field, std::string_view what) {
  add(field, what, false);
}

void RequestNotes::add(std::string_view field, std::string_view what, bool is_ignored) {
  if (notes_.size() >= kMostNotes) return;
  std::string name(field.substr(0, kMostNoteName));
  // Headers and lines of the log are made of it.
  std::ranges::replace_if(
      name, [](char c) { return !is_plain(c); }, '?');
  notes_.push_back({std::move(name), std::string(what), is_ignored});
}

std::string RequestNotes::header() const {
  std::string names;
  for (const Note& note : notes_) {
    if (!note.is_ignored) continue;
    if (names.size() + note.field.size() + 2 > kMostHeader) break;
    names += (names.empty() ? "" : ", ") + note.field;
  }
  return names;
}

}  // namespace llm
