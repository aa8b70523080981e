#include "engine/chat/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/utf8.h"
#include "engine/chat/jinja/text.h"

namespace llm::jinja {
namespace {

constexpr std::size_t kNone = std::string_view::npos;
constexpr std::array<std::string_view, 25> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", ",", "|"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) != 0;
}
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

/// Line ends become "\n", and one at the end goes.
String normalized(std::string_view source) {
  String text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    text += source[i] == '\r' ? '\n' : source[i];
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(String text) : s_(made_->source = std::move(text)) {}

  Result<std::unique_ptr<const Tokens>> run() {
    while (at_ < s_.size() && !error_) {
      const std::size_t begin = next_begin(at_);
      if (begin == kNone) {
        add(Token::Kind::kText, s_.substr(at_));
        break;
      }
      const char kind = s_[begin + 1];
      std::size_t inside = begin + 2;
      const char sign = sign_at(inside);
      if (sign != 0) ++inside;
      add_data(at_, begin, sign, kind != '{');
      move_to(inside);
      if (kind == '#') {
        skip_comment();
      } else if (kind == '{') {
        add(Token::Kind::kVariable, "{{");
        lex_tag("}}", Token::Kind::kVariableEnd);
      } else if (const std::size_t raw = raw_begin(inside); raw != kNone) {
        move_to(raw);
        lex_raw();
      } else {
        add(Token::Kind::kBlock, "{%");
        lex_tag("%}", Token::Kind::kBlockEnd);
      }
    }
    if (error_) return *std::move(error_);
    add(Token::Kind::kEnd, "the template's end");
    return std::unique_ptr<const Tokens>(std::move(made_));
  }

 private:
  void fail(std::string message) {
    if (!error_) error_ = template_error(ErrorCode::kMalformed, line_, message);
  }
  void add(Token::Kind kind, std::string_view text) {
    if (kind == Token::Kind::kText && text.empty()) return;
    meter_here->line = line_;
    made_->tokens.push_back({kind, line_, text});
  }
  /// A text that the source has not as it is.
  std::string_view kept(String text) {
    if (s_.substr(at_ + 1).starts_with(text)) return s_.substr(at_ + 1, text.size());
    return made_->strings.emplace_back(std::move(text));
  }
  void move_to(std::size_t at) {
    line_ += static_cast<int>(std::ranges::count(s_.substr(at_, at - at_), '\n'));
    at_ = at;
  }
  char sign_at(std::size_t at) const {
    return at < s_.size() && (s_[at] == '-' || s_[at] == '+') ? s_[at] : '\0';
  }
  std::size_t next_begin(std::size_t at) const {
    for (; (at = s_.find('{', at)) != kNone; ++at) {
      if (at + 1 < s_.size() && std::string_view("{%#").find(s_[at + 1]) != kNone) return at;
    }
    return kNone;
  }
  std::size_t after_spaces(std::size_t at) const {
    for (std::size_t n; (n = space_size(s_, at)) > 0;) at += n;
    return at;
  }

  /// The text before a tag, without what the tag's sign or lstrip_blocks takes from its end.
  void add_data(std::size_t from, std::size_t to, char sign, bool strips_indent) {
    std::string_view data = s_.substr(from, to - from);
    if (sign == '-') {
      data = data.substr(0, strip(data, false, true).end);
    } else if (sign == 0 && strips_indent) {
      const bool starts_line = from == 0 || s_[from - 1] == '\n';
      const std::size_t line = data.rfind('\n') + 1;  // 0 where there is none
      const bool is_blank = strip(data.substr(line), true, false).begin == data.size() - line;
      if ((line > 0 || starts_line) && is_blank) data = data.substr(0, line);
    }
    add(Token::Kind::kText, data);
  }

  /// Goes behind a tag's end at `end`: "-" takes all white space, a block's end one line break.
  void leave(std::size_t end, char sign, bool is_block) {
    std::size_t next = end + 2;
    if (sign == '-') {
      next = after_spaces(next);
    } else if (sign == 0 && is_block && next < s_.size() && s_[next] == '\n') {
      ++next;
    }
    move_to(next);
  }

  void skip_comment() {
    const std::size_t end = s_.find("#}", at_);
    if (end == kNone) return fail("found a comment without #}, need its end");
    leave(end, end > at_ ? sign_at(end - 1) : '\0', true);
  }

  /// Behind "raw %}" at `at`, or kNone where something else stands there.
  std::size_t raw_begin(std::size_t at) const {
    at = after_spaces(at);
    if (!s_.substr(at).starts_with("raw")) return kNone;
    at = after_spaces(at + 3);
    if (s_.substr(at).starts_with("-%}")) return after_spaces(at + 3);
    return s_.substr(at).starts_with("%}") ? at + 2 : kNone;
  }

  void lex_raw() {
    for (std::size_t begin = at_; (begin = s_.find("{%", begin)) != kNone; ++begin) {
      std::size_t at = begin + 2;
      const char sign = sign_at(at);
      at = after_spaces(at + (sign != 0 ? 1 : 0));
      if (!s_.substr(at).starts_with("endraw")) continue;
      at = after_spaces(at + 6);
      const char end_sign = sign_at(at);
      if (end_sign != 0) ++at;
      if (!s_.substr(at).starts_with("%}")) continue;
      add_data(at_, begin, sign, true);
      return leave(at, end_sign, true);
    }
    fail("found raw without endraw, need its end");
  }

  void lex_tag(std::string_view end, Token::Kind end_kind) {
    int open = 0;  // brackets, inside which no end is seen
    while (!error_) {
      move_to(after_spaces(at_));
      if (at_ >= s_.size()) return fail(fmt::format("found a tag without {}, need its end", end));
      char sign = sign_at(at_);
      if (sign == '+' && end_kind == Token::Kind::kVariableEnd) sign = 0;
      if (open == 0 && s_.substr(at_ + (sign != 0 ? 1 : 0)).starts_with(end)) {
        add(end_kind, end);
        return leave(at_ + (sign != 0 ? 1 : 0), sign, end_kind == Token::Kind::kBlockEnd);
      }
      const char c = s_[at_];
      if (is_digit(c)) {
        lex_number();
      } else if (is_name_start(c)) {
        take(std::ranges::find_if_not(s_.substr(at_), is_name_part) - s_.begin(),
             Token::Kind::kName);
      } else if (c == '\'' || c == '"') {
        lex_string(c);
      } else {
        lex_operator(open);
      }
    }
  }

  void take(std::ptrdiff_t end, Token::Kind kind) {
    const auto to = static_cast<std::size_t>(end);
    add(kind, s_.substr(at_, to - at_));
    move_to(to);
  }

  void lex_operator(int& open) {
    const std::string_view rest = s_.substr(at_);
    for (const std::string_view op : kOperators) {
      if (!rest.starts_with(op)) continue;
      if (op == "(" || op == "[" || op == "{") ++open;
      if ((op == ")" || op == "]" || op == "}") && --open < 0) break;
      add(Token::Kind::kOperator, op);
      return move_to(at_ + op.size());
    }
    fail(fmt::format("found '{}', need an expression", rest.substr(0, character_size(rest, 0))));
  }

  void lex_number() {
    std::size_t at = at_;
    const auto digits = [&] {
      while (at < s_.size() && (is_digit(s_[at]) || s_[at] == '_')) ++at;
    };
    const auto digit_at = [&](std::size_t i) { return i < s_.size() && is_digit(s_[i]); };
    digits();
    bool is_float = false;
    // "1.foo" is no float, and neither are the numbers of "a.0.1".
    const bool after_dot = at_ > 0 && s_[at_ - 1] == '.';
    if (!after_dot && at < s_.size() && s_[at] == '.' && digit_at(at + 1)) {
      is_float = true;
      ++at;
      digits();
    }
    if (!after_dot && at < s_.size() && (s_[at] == 'e' || s_[at] == 'E')) {
      const std::size_t exponent = at + 1 + (sign_at(at + 1) != 0 ? 1 : 0);
      if (digit_at(exponent)) {
        is_float = true;
        at = exponent;
        digits();
      }
    }
    String number(s_.substr(at_, at - at_));
    std::erase(number, '_');
    add(is_float ? Token::Kind::kFloat : Token::Kind::kInteger, kept(std::move(number)));
    move_to(at);
  }

  void lex_string(char quote) {
    String text;
    std::size_t at = at_ + 1;
    while (at < s_.size() && s_[at] != quote) {
      if (s_[at] == '\\' && at + 1 < s_.size()) {
        at = unescape(at + 1, text);
      } else {
        text += s_[at++];
      }
    }
    if (at >= s_.size()) return fail("found a string without its closing quote, need one");
    add(Token::Kind::kString, kept(std::move(text)));
    move_to(at + 1);
  }

  /// Appends what the escape behind a backslash stands for; returns where it ends.
  std::size_t unescape(std::size_t at, String& text) {
    constexpr std::string_view kLetters = "abfnrtv\\'\"";
    constexpr std::string_view kMeans = "\a\b\f\n\r\t\v\\'\"";
    const char c = s_[at];
    if (const std::size_t i = kLetters.find(c); i != kNone) {
      text += kMeans[i];
      return at + 1;
    }
    if (c == '\n') return at + 1;
    const bool is_octal = c >= '0' && c <= '7';
    const std::size_t n = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : is_octal ? 3 : 0;
    if (n == 0) {
      text += '\\';
      return at;  // an unknown escape stays
    }
    const std::string_view digits = is_octal ? "01234567" : "0123456789abcdefABCDEF";
    const std::size_t begin = is_octal ? at : at + 1;
    const std::string part(s_.substr(begin, n));
    const std::size_t found = std::min(part.find_first_not_of(digits), part.size());
    char32_t code = 0;
    for (const char digit : part.substr(0, found)) {
      const int value = is_digit(digit) ? digit - '0' : (digit | 0x20) - 'a' + 10;
      code = code * (is_octal ? 8 : 16) + static_cast<char32_t>(value);
    }
    if ((!is_octal && found < n) || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      fail(fmt::format("found the escape \\{}{}, need a character's number", c, part));
    } else {
      std::string character;
      append_utf8(code, character);
      text += character;
    }
    return begin + found;
  }

  std::unique_ptr<Tokens> made_ = std::make_unique<Tokens>();
  std::string_view s_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::optional<Error> error_;
};

}  // namespace

Error template_error(ErrorCode code, int line, std::string_view message) {
  constexpr std::size_t kMost = 2000;  // a template's own words, or names of any length
  if (message.size() > kMost)
    message = message.substr(0, complete_utf8_size(message.substr(0, kMost)));
  return {code, "chat template", fmt::format("line {}: {}", line, message)};
}

Result<std::unique_ptr<const Tokens>> lex(std::string_view source) {
  return Lexer(normalized(source)).run();
}

}  // namespace llm::jinja
