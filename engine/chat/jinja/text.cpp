#include "engine/chat/jinja/text.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/utf8.h"

namespace llm::jinja {
namespace {

/// Characters that are sought: ASCII by a table, others sorted.
class CharacterSet {
 public:
  explicit CharacterSet(std::string_view text) {
    touch(4 * text.size());
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t n = character_size(text, at);
      if ((text[at] & 0x80) == 0) {
        ascii_[static_cast<unsigned char>(text[at])] = true;
      } else {
        others_.push_back(text.substr(at, n));
      }
      at += n;
    }
    charge(others_.size() * std::bit_width(others_.size()) / 8);
    std::ranges::sort(others_);
  }
  bool has(std::string_view character) const {
    const auto first = static_cast<unsigned char>(character[0]);
    if (first < 0x80) return ascii_[first];
    return std::ranges::binary_search(others_, character);
  }

 private:
  std::array<bool, 128> ascii_{};
  Vector<std::string_view> others_;
};

/// The size of the part at the front that is ASCII, in words of eight.
std::size_t ascii_words(std::string_view text) {
  constexpr std::uint64_t kHigh = 0x8080808080808080U;
  std::size_t at = 0;
  for (std::uint64_t word; at + sizeof word <= text.size(); at += sizeof word) {
    std::memcpy(&word, text.data() + at, sizeof word);
    if ((word & kHigh) != 0) break;
  }
  return at;
}

}  // namespace

std::size_t Text::run_at(std::size_t at) const {
  const auto run = std::ranges::upper_bound(runs_, at, {}, &Run::end);
  return static_cast<std::size_t>(run - runs_.begin());
}

Tag Text::tag_at(std::size_t at) const { return runs_[run_at(at)].tag; }

void Text::append(std::string_view bytes, Tag tag) {
  touch(8 + bytes.size());
  if (bytes.empty()) return;
  const bool is_new_run = runs_.empty() || runs_.back().tag != tag;
  if (bytes.size() > kMaxBytes - bytes_.size() || (is_new_run && runs_.size() == kMaxRuns)) {
    is_too_long_ = true;
    return;
  }
  bytes_ += bytes;
  if (is_new_run) runs_.push_back({0, tag});
  runs_.back().end = static_cast<std::uint32_t>(bytes_.size());
}

void Text::append(const Text& other, std::size_t from, std::size_t n) {
  if (other.is_too_long_) is_too_long_ = true;
  from = std::min(from, other.size());
  const std::size_t end = from + std::min(n, other.size() - from);
  for (std::size_t run = other.run_at(from); from < end; ++run) {
    const std::size_t stop = std::min<std::size_t>(end, other.runs_[run].end);
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
  if ((text[at] & 0x80) == 0) return 1;
  const Utf8Head head = utf8_head(text.substr(at));
  return head.kind == Utf8Head::Kind::kCharacter ? head.size : 1;
}

std::size_t count_characters(std::string_view text) {
  touch(text.size());
  std::size_t n = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t plain = ascii_words(text.substr(at));
    n += plain;
    at += plain;
    for (int i = 0; i < 8 && at < text.size(); ++i, ++n) at += character_size(text, at);
  }
  return n;
}

std::size_t character_offset(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  while (index > 0 && at < text.size()) {
    const std::size_t plain = ascii_words(text.substr(at, index));
    index -= plain;
    at += plain;
    for (int i = 0; i < 8 && index > 0 && at < text.size(); ++i, --index)
      at += character_size(text, at);
  }
  touch(at);
  return at;
}

std::size_t find_text(std::string_view text, std::string_view what, std::size_t from) {
  touch(8);
  if (from > text.size()) return Text::kNone;
  if (what.empty()) return from;
  // The C library's search is linear: two-way for what is long, else a comparison a place at most.
  const void* found = memmem(text.data() + from, text.size() - from, what.data(), what.size());
  const std::size_t at =
      found == nullptr ? Text::kNone
                       : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
  touch(2 * (std::min(at, text.size()) - from) + what.size());
  return at;
}

std::size_t find_last_text(std::string_view text, std::string_view what) {
  touch(text.size() + what.size());
  const String backwards(text.rbegin(), text.rend());
  const std::size_t at = find_text(backwards, String(what.rbegin(), what.rend()));
  return at == Text::kNone ? at : text.size() - at - what.size();
}

bool starts_with(std::string_view text, std::string_view what) {
  touch(8 + what.size());
  return text.starts_with(what);
}

bool ends_with(std::string_view text, std::string_view what) {
  touch(8 + what.size());
  return text.ends_with(what);
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
  if ((first & 0x80) == 0) return 0;
  touch(64);
  for (const std::string_view space : kWide) {
    if (text.substr(at).starts_with(space)) return space.size();
  }
  return 0;
}

std::size_t last_character(std::string_view text) {
  const std::size_t end = text.size();
  std::size_t last = end - 1;
  while (last > 0 && end - last < 4 && (text[last] & 0xC0) == 0x80) --last;
  return last + character_size(text, last) == end ? last : end - 1;
}

Stripped strip(std::string_view text, bool front, bool back, const std::string_view* of) {
  const CharacterSet set(of ? *of : std::string_view());
  const auto taken = [&](std::size_t at) -> std::size_t {
    touch(4);
    if (!of) return space_size(text, at);
    const std::size_t n = character_size(text, at);
    return set.has(text.substr(at, n)) ? n : 0;
  };
  Stripped left{0, text.size()};
  while (front && left.begin < left.end) {
    const std::size_t n = taken(left.begin);
    if (n == 0) break;
    left.begin += n;
  }
  while (back && left.begin < left.end) {
    const std::size_t last =
        left.begin + last_character(text.substr(left.begin, left.end - left.begin));
    if (taken(last) == 0) break;
    left.end = last;
  }
  return left;
}

}  // namespace llm::jinja
