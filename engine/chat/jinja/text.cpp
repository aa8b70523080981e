#include "engine/chat/jinja/text.h"

#include <algorithm>
#include <array>

#include "base/utf8.h"

namespace llm::jinja {

std::size_t Text::run_at(std::size_t at) const {
  const auto run = std::ranges::upper_bound(runs_, at, {}, &Run::end);
  return static_cast<std::size_t>(run - runs_.begin());
}

Tag Text::tag_at(std::size_t at) const { return runs_[run_at(at)].tag; }

void Text::append(std::string_view bytes, Tag tag) {
  if (bytes.size() > kMaxBytes - bytes_.size()) {
    is_too_long_ = true;
    return;
  }
  if (bytes.empty()) return;
  bytes_ += bytes;
  if (!runs_.empty() && runs_.back().tag == tag) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), tag});
  }
}

void Text::append(const Text& other, std::size_t from, std::size_t n) {
  if (other.is_too_long_) is_too_long_ = true;
  from = std::min(from, other.size());
  const std::size_t end = from + std::min(n, other.size() - from);
  for (std::size_t run = other.run_at(from); from < end; ++run) {
    const std::size_t stop = std::min(end, other.runs_[run].end);
    append(other.bytes().substr(from, stop - from), other.runs_[run].tag);
    from = stop;
  }
}

Text Text::part(std::size_t from, std::size_t n) const {
  Text part;
  part.append(*this, from, n);
  return part;
}

std::size_t character_size(std::string_view text, std::size_t at) {
  const Utf8Head head = utf8_head(text.substr(at));
  return head.kind == Utf8Head::Kind::kCharacter ? head.size : 1;
}

std::size_t count_characters(std::string_view text) {
  std::size_t n = 0;
  for (std::size_t at = 0; at < text.size(); at += character_size(text, at)) ++n;
  return n;
}

std::size_t character_offset(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  while (index-- > 0 && at < text.size()) at += character_size(text, at);
  return at;
}

std::size_t space_size(std::string_view text, std::size_t at) {
  // Source: CPython's str.isspace().
  constexpr std::array<std::string_view, 19> kWide = {
      "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003",
      "\u2004", "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200a",
      "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"};
  if (at >= text.size()) return 0;
  const char first = text[at];
  if ((first >= '\t' && first <= '\r') || (first >= '\x1c' && first <= ' ')) return 1;
  for (const std::string_view space : kWide) {
    if (text.substr(at).starts_with(space)) return space.size();
  }
  return 0;
}

Stripped strip(std::string_view text, bool front, bool back, const std::string_view* of) {
  const auto taken = [&](std::size_t at) -> std::size_t {
    if (!of) return space_size(text, at);
    const std::size_t n = character_size(text, at);
    return of->find(text.substr(at, n)) == std::string_view::npos ? 0 : n;
  };
  Stripped left{0, text.size()};
  while (front && left.begin < left.end) {
    const std::size_t n = taken(left.begin);
    if (n == 0) break;
    left.begin += n;
  }
  while (back && left.begin < left.end) {
    std::size_t last = left.end - 1;
    while (last > left.begin && left.end - last < 4 && (text[last] & 0xC0) == 0x80) --last;
    if (last + character_size(text, last) != left.end) last = left.end - 1;
    if (taken(last) == 0) break;
    left.end = last;
  }
  return left;
}

}  // namespace llm::jinja
