#include "engine/grammar/pattern_rules.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "engine/grammar/rules.h"

namespace llm {
namespace {

constexpr std::size_t kMostDepth = 64;
constexpr std::int64_t kMostRepeats = 100'000;

CodeSet ascii_without(const CodeSet& set) { return CodeSet({{0, 0x7F}}).without(set); }

/// The set of \d, \w, \s or the opposite of one.
std::optional<CodeSet> shorthand(char letter) {
  const CodeSet digits({{'0', '9'}});
  const CodeSet words({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
  const CodeSet spaces({{'\t', '\r'}, {' ', ' '}});
  switch (letter) {
    case 'd':
      return digits;
    case 'D':
      return ascii_without(digits);
    case 'w':
      return words;
    case 'W':
      return ascii_without(words);
    case 's':
      return spaces;
    case 'S':
      return ascii_without(spaces);
    default:
      return std::nullopt;
  }
}

class PatternReader {
 public:
  PatternReader(std::string_view pattern, bool in_json) : text_(pattern), in_json_(in_json) {}

  Result<std::string> read() {
    if (!is_valid_utf8(text_))
      return Error{ErrorCode::kUsage, "", "found a pattern that is not UTF-8, need UTF-8"};
    LLM_TRY(std::string expression, alternatives(0));
    if (!at_end()) return refuse("an opening parenthesis for it");
    return expression;
  }

 private:
  bool at_end() const { return at_ == text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool take(char c) {
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  Error refuse(std::string_view need) const {
    return Error{
        ErrorCode::kUsage, "",
        fmt::format("found {} at byte {} of the pattern, need {}",
                    at_end() ? "its end" : fmt::format("\"{}\"", text_.substr(at_, 8)), at_, need)};
  }

  Result<std::string> alternatives(std::size_t depth) {
    if (depth > kMostDepth) return refuse(fmt::format("at most {} levels of groups", kMostDepth));
    std::vector<std::string> choices;
    do {
      LLM_TRY(std::string choice, sequence(depth));
      choices.push_back(std::move(choice));
    } while (take('|'));
    return either(choices);
  }

  /// A branch. All of it is matched, so an anchor at its own end on the outermost level says
  /// nothing new.
  Result<std::string> sequence(std::size_t depth) {
    std::string parts;
    if (depth == 0) take('^');
    while (!at_end() && peek() != '|' && peek() != ')') {
      if (depth == 0 && peek() == '$' && (at_ + 1 == text_.size() || text_[at_ + 1] == '|')) {
        ++at_;
        break;
      }
      LLM_TRY(const std::string part, quantified(depth));
      parts += (parts.empty() ? "" : " ") + part;
    }
    return parts.empty() ? "\"\"" : parts;
  }

  Result<std::string> quantified(std::size_t depth) {
    LLM_TRY(std::string part, atom(depth));
    std::int64_t least = 1;
    std::int64_t most = 1;
    if (take('*')) {
      least = 0, most = -1;
    } else if (take('+')) {
      most = -1;
    } else if (take('?')) {
      least = 0;
    } else if (take('{')) {
      LLM_RETURN_IF_ERROR(counts(least, most));
    } else {
      return part;
    }
    take('?');  // lazy
    if (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{')
      return refuse("no quantifier of a quantifier");
    return repeated(part, least, most);
  }

  /// "n}", "n,}" or "n,m}".
  Status counts(std::int64_t& least, std::int64_t& most) {
    LLM_TRY(least, count());
    most = least;
    if (take(',')) {
      most = -1;
      if (peek() != '}') {
        LLM_TRY(most, count());
        if (most < least) return refuse("no less than before it");
      }
    }
    return take('}') ? Status(Ok{}) : refuse("a closing brace");
  }

  Result<std::int64_t> count() {
    std::int64_t value = -1;
    const char* begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error != std::errc() || value < 0 || value > kMostRepeats)
      return refuse(fmt::format("a number in 0..{}", kMostRepeats));
    at_ += static_cast<std::size_t>(end - begin);
    return value;
  }

  Result<std::string> atom(std::size_t depth) {
    switch (peek()) {
      case '(': {
        ++at_;
        if (take('?') && !take(':')) return refuse("a plain group or (?:");
        LLM_TRY(std::string inner, alternatives(depth + 1));
        if (!take(')')) return refuse("a closing parenthesis");
        return fmt::format("({})", inner);
      }
      case '[':
        ++at_;
        return char_class();
      case '.':
        ++at_;
        return one_of(
            CodeSet::all().without(CodeSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}})));
      case '^':
      case '$':
        return refuse("anchors only at the ends");
      case '*':
      case '+':
      case '?':
      case '{':
        return refuse("something to repeat");
      default: {
        LLM_TRY(const CodeSet set, single(false));
        return one_of(set);
      }
    }
  }

  /// What follows "[".
  Result<std::string> char_class() {
    const bool is_negated = take('^');
    bool is_ascii = false;
    CodeSet set;
    if (peek() == ']') return refuse("a class that is not empty");
    while (!take(']')) {
      if (at_end()) return refuse("a closing bracket");
      const std::size_t begin = at_;
      LLM_TRY(const CodeSet low, single(true));
      const bool is_short = is_shorthand(begin);
      is_ascii = is_ascii || is_short;
      set = set.with(low);
      if (peek() != '-' || at_ + 1 >= text_.size() || text_[at_ + 1] == ']') continue;
      ++at_;
      const std::size_t second = at_;
      LLM_TRY(const CodeSet high, single(true));
      if (is_short || is_shorthand(second) || high.first() < low.first())
        return refuse("a range of characters, ascending");
      set = set.with(CodeSet({{low.first(), high.first()}}));
    }
    if (!is_negated) return one_of(set);
    return one_of(is_ascii ? ascii_without(set) : CodeSet::all().without(set));
  }

  bool is_shorthand(std::size_t at) const {
    return text_[at] == '\\' && shorthand(text_[at + 1]).has_value();
  }

  /// A character, an escape or a shorthand.
  Result<CodeSet> single(bool in_class) {
    if (!take('\\')) {
      const std::size_t size = utf8_head(text_.substr(at_)).size;
      const char32_t code = utf8_code_point(text_.substr(at_, size));
      at_ += size;
      return of(code);
    }
    if (at_end()) return refuse("a character after the backslash");
    const char letter = text_[at_];
    if (auto set = shorthand(letter)) {
      ++at_;
      return *std::move(set);
    }
    constexpr std::string_view kLetters = "tnrfv0";
    constexpr std::string_view kCodes("\t\n\r\f\v\0", 6);
    const auto is_digit = [this](std::size_t i) {
      return i < text_.size() && text_[i] >= '0' && text_[i] <= '9';
    };
    if (const std::size_t which = kLetters.find(letter);
        which != std::string_view::npos && !(letter == '0' && is_digit(at_ + 1))) {
      ++at_;
      return of(static_cast<unsigned char>(kCodes[which]));
    }
    if (letter == 'x' || letter == 'u') return hexadecimal(letter == 'x' ? 2 : 4);
    const bool is_letter = (letter >= '0' && letter <= '9') || (letter >= 'A' && letter <= 'Z') ||
                           (letter >= 'a' && letter <= 'z') ||
                           static_cast<unsigned char>(letter) > 0x7E;
    if (is_letter && in_class && letter == 'b') {
      ++at_;
      return of('\b');
    }
    if (is_letter) return refuse("an escape that docs/structured_output.md names");
    ++at_;
    return of(static_cast<unsigned char>(letter));
  }

  static CodeSet of(char32_t code) { return CodeSet({{code, code}}); }

  /// "xHH" or "uHHHH".
  Result<CodeSet> hexadecimal(std::size_t n_digits) {
    std::uint32_t code = 0;
    const std::string_view digits = text_.substr(at_ + 1, n_digits);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (digits.size() != n_digits || error != std::errc() || end != digits.data() + n_digits ||
        (code >= 0xD800 && code < 0xE000))
      return refuse(fmt::format("{} hexadecimal digits that are not a surrogate", n_digits));
    at_ += 1 + n_digits;
    return of(code);
  }

  Result<std::string> one_of(const CodeSet& set) const {
    std::string text = in_json_ ? json_character(set) : set.text();
    if (text.empty()) return refuse("characters that a JSON string can hold before it");
    return text;
  }

  std::string_view text_;
  bool in_json_;
  std::size_t at_ = 0;
};

}  // namespace

Result<std::string> pattern_expression(std::string_view pattern, bool in_json) {
  return PatternReader(pattern, in_json).read();
}

}  // namespace llm
