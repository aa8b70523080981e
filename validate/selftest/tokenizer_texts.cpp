#include <algorithm>
#include <random>
#include <string_view>
#include <utility>

#include "base/utf8.h"
#include "validate/selftest/naive_tokenizer.h"
#include "validate/selftest/tokenizer_check.h"

namespace llm {
namespace {

constexpr std::size_t kMostCharacters = 200;

using Alphabet = std::vector<std::string_view>;

/// What the characters of one kind of text are drawn from.
const std::vector<Alphabet>& alphabets() {
  static const std::vector<Alphabet> all = {
      {"a", "b", "c", "d", "e", "h", "i", "l", "n", "o", "r", "s", "t", "u", " ", " ", "T", "I"},
      {" ", " ", " ", "\n", "\t", "\r\n", "a"},
      {"0", "1", "2", "9", "7", ".", ",", " "},
      {"!", "?",  ".", ",", ";", ":", "'", "\"", "(", ")", "[", "]", "{", "}", "<", ">",
       "/", "\\", "-", "_", "#", "@", "&", "*",  "=", "+", "~", "`", "|", "$", "%", "^"},
      {"\u00E9", "\u00E8", "\u00FC", "\u00F1", "\u00E7", "\u00DF", "\u0153", "\u0142", "a", "e",
       " "},
      {"e\u0301", "a\u0308", "o\u0302\u0323", "\u0301", "\u0308", "n", " "},
      {"\u4E2D", "\u6587", "\u65E5", "\u672C", "\u8A9E", "\uD55C", "\uAD6D", "\u3042", "\u30AB",
       "\u3002", "\uFF0C", " "},
      {"\U0001F600", "\U0001F468\u200D\U0001F469\u200D\U0001F467", "\U0001F44D\U0001F3FD",
       "\U0001F1E9\U0001F1EA", "\u2764\uFE0F", "\u200D", " ", "a"},
      {"\u0410", "\u0431", "\u03B1", "\u03C9", "\u05D0", "\u0627", "\u0644", "\u0915", "\u094D",
       "\u0937", " "},
      {"\u2581", " ", "\u00A0", "\u3000", "\u200B", "\uFEFF", "a"},
      {"\xFF", "\xC0\x80", "\xED\xA0\x80", "\xE2\x96", "\xF0\x9F", "\x80", "\xF4\x90\x80\x80",
       "\xC3", "a", " ", "\u00E9"},
      {std::string_view("\0", 1), "\x01", "\x1B", "\x7F", "\u0085", "a"},
  };
  return all;
}

/// Draws by the remainder alone, so that no library's distributions change a text.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}

  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
  template <typename T>
  const T& of(const std::vector<T>& values) {
    return values[below(values.size())];
  }
  /// Mostly few characters, sometimes up to kMostCharacters.
  std::size_t length() { return below(1 + (below(4) == 0 ? kMostCharacters : 40)); }

 private:
  std::mt19937_64 random_;
};

std::string plain_spaces(std::string_view piece) {
  constexpr std::string_view kMark = "\xE2\x96\x81";
  std::string out;
  while (!piece.empty()) {
    const bool mark = piece.starts_with(kMark);
    out += mark ? ' ' : piece[0];
    piece.remove_prefix(mark ? kMark.size() : 1);
  }
  return out;
}

bool is_plain(const VocabSpec::Token& token) {
  return !token.text.empty() &&
         (token.kind == TokenKind::kNormal || token.kind == TokenKind::kUnused);
}

class TextMaker {
 public:
  TextMaker(const VocabSpec& spec, std::uint64_t seed) : spec_(spec), draw_(seed) {
    for (const VocabSpec::Token& token : spec.tokens) {
      if (token.text.empty() || is_plain(token)) continue;
      (token.kind == TokenKind::kByte ? bytes_ : special_).push_back(token.text);
    }
  }

  std::string text_of(std::size_t kind) {
    const std::size_t length = draw_.length();
    if (kind < alphabets().size()) return drawn_from(alphabets()[kind], length);
    std::string text;
    switch (kind - alphabets().size()) {
      case 0:  // one character again and again
        for (const std::string_view c = draw_.of(draw_.of(alphabets())); text.size() < length;)
          text += c;
        break;
      case 1:  // any code points
        for (std::size_t i = 0; i < length; ++i) {
          const std::size_t limit = draw_.below(2) == 0 ? 0x3000 : 0x20000;
          const auto value = static_cast<char32_t>(draw_.below(limit));
          append_utf8(value >= 0xD800 && value < 0xE000 ? 0x41 : value, text);
        }
        break;
      case 2:  // any bytes
        for (std::size_t i = 0; i < length; ++i) text += static_cast<char>(draw_.below(256));
        break;
      case 3:  // joined pieces
        for (std::size_t n = 1 + draw_.below(8); n > 0; --n) text += piece();
        break;
      case 4:  // joined pieces, cut anywhere
        text = piece() + piece();
        text.resize(draw_.below(text.size() + 1));
        break;
      case 5: {  // words of one length that begin and end alike, each several times
        const std::string stem = drawn_from(alphabets()[0], 12);
        for (std::size_t n = 8 + draw_.below(32); n > 0; --n)
          text += " " + stem + static_cast<char>('a' + draw_.below(26)) + "ing";
        break;
      }
      default:  // special tokens within words
        for (std::size_t n = 1 + draw_.below(4); n > 0; --n) {
          text += drawn_from(alphabets()[0], draw_.below(6));
          const auto& spellings = draw_.below(4) == 0 ? bytes_ : special_;
          if (!spellings.empty()) text += plain_spaces(draw_.of(spellings));
        }
    }
    return text;
  }

  static std::size_t n_kinds() { return alphabets().size() + 7; }

 private:
  std::string drawn_from(const Alphabet& alphabet, std::size_t length) {
    std::string text;
    for (std::size_t i = 0; i < length; ++i) text += draw_.of(alphabet);
    return text;
  }
  std::string piece() { return plain_spaces(draw_.of(spec_.tokens).text.substr(0, 40)); }

  const VocabSpec& spec_;
  Draw draw_;
  std::vector<std::string> special_;  ///< control, unknown, user-defined
  std::vector<std::string> bytes_;
};

}  // namespace

std::vector<std::string> tokenizer_texts(const VocabSpec& spec, std::size_t n, std::uint64_t seed) {
  std::vector<std::string> texts = {"", " ", "  ", "\n", "a", " a", "a "};
  TextMaker make(spec, seed);
  for (std::size_t i = 0; texts.size() < n; ++i)
    texts.push_back(make.text_of(i % TextMaker::n_kinds()));
  return texts;
}

std::vector<std::string> equal_score_texts(const VocabSpec& spec, std::size_t n,
                                           std::uint64_t seed) {
  using Piece = std::pair<float, std::string_view>;
  std::vector<Piece> pieces;  // that take part in merging
  for (const VocabSpec::Token& token : spec.tokens) {
    if (is_plain(token) && !naive_is_character(token.text))
      pieces.emplace_back(token.score, token.text);
  }
  std::ranges::sort(pieces);
  Draw draw(seed);
  std::vector<std::string> texts;
  std::size_t n_found = 0;
  for (const auto& [score, text] : pieces) {
    for (std::size_t begin = 1; begin < text.size(); ++begin) {
      const std::string_view common = text.substr(begin);
      const auto first = std::ranges::lower_bound(pieces, Piece(score, common));
      const auto other = first + static_cast<std::ptrdiff_t>(draw.below(4));
      for (const auto& found : {first, other}) {
        if (found >= pieces.end() || found->first != score || found->second == common) continue;
        if (!found->second.starts_with(common)) continue;
        // Each of all texts is kept with the same probability.
        const std::size_t place = n_found < n ? n_found : draw.below(n_found + 1);
        ++n_found;
        texts.resize(std::min(n, n_found));
        if (place < n) {
          texts[place] = plain_spaces(text);
          texts[place] += plain_spaces(found->second.substr(common.size()));
        }
      }
    }
  }
  // Behind another character the first one does not merge with the dummy prefix.
  static const Alphabet kBefore = {"\n", "7", "q", "z", "e", "o", "-", ".", "\u4E2D", "\U0001F600"};
  const std::size_t n_different = texts.size();
  while (n_different > 0 && texts.size() < n) {
    const std::string& text = texts[draw.below(n_different)];
    texts.push_back(std::string(draw.of(kBefore)) + text);
  }
  return texts;
}

}  // namespace llm
