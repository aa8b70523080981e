#include "engine/grammar/grammar_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "engine/grammar/derivations.h"
#include "engine/grammar/rules.h"

namespace llm {
namespace {

constexpr std::int64_t kMostNumber = 100'000;
constexpr std::size_t kMostLevels = 64;
constexpr std::string_view kName =
    "-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";

/// Words that xgrammar takes for something else than a rule.
constexpr std::array<std::string_view, 8> kReserved = {"ExcludeToken", "Regex", "Substring",
                                                       "TagDispatch",  "Token", "TokenTagDispatch",
                                                       "false",        "true"};

class GrammarReader {
 public:
  explicit GrammarReader(std::string_view text) : text_(text) {}

  Result<std::string> read() {
    if (const std::size_t valid = valid_utf8_size(text_); valid < text_.size()) {
      at_ = valid;
      return refuse("a grammar in UTF-8");
    }
    std::string rules;
    skip_space();
    while (at_ < text_.size()) {
      LLM_TRY(const std::string rule, read_rule());
      rules += rule;
    }
    for (const auto& [of, at] : named_at_) {
      at_ = at;
      if (!defined_.contains(of))
        return refuse(fmt::format("a rule of that name: \"{}\" is not defined", of));
    }
    if (!defined_.contains("root"))
      return Error{ErrorCode::kUsage, "", "found no rule root, need one"};
    LLM_RETURN_IF_ERROR(derivations_.check(text_));
    return rules;
  }

 private:
  using Element = Derivations::Element;

  /// What was read: its text, and what it derives.
  struct Part {
    std::string text;
    Element element;
  };

  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  std::size_t line() const {
    return 1 + static_cast<std::size_t>(std::ranges::count(text_.substr(0, at_), '\n'));
  }
  Error refuse(std::string_view need) const {
    const std::string_view rest = text_.substr(at_, 24);
    const std::string_view shown = rest.substr(0, rest.find_first_of("\r\n"));
    const std::string found =
        rest.empty()      ? "its end"
        : rest[0] == '\0' ? "a character U+0000"
        : utf8_head(rest).kind == Utf8Head::Kind::kInvalid
            ? "a byte that is not UTF-8"
            : fmt::format("\"{}\"", shown.substr(0, complete_utf8_size(shown)));
    return Error{ErrorCode::kUsage, "",
                 fmt::format("found {} in line {} of the grammar, need {}", found, line(), need)};
  }

  /// White space and comments. A comment ends with its line, which a carriage return may end.
  void skip_space() {
    while (at_ < text_.size()) {
      if (text_[at_] == '#') {
        at_ = std::min(text_.find_first_of("\r\n", at_), text_.size());
      } else if (std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string_view name() {
    const std::size_t begin = at_;
    if (peek() >= '0' && peek() <= '9') return {};
    at_ = std::min(text_.find_first_not_of(kName, at_), text_.size());
    return text_.substr(begin, at_ - begin);
  }

  /// Whether a rule begins here: a name and "::=". Changes nothing.
  bool at_rule() {
    const std::size_t begin = at_;
    const bool has_name = !name().empty();
    skip_space();
    const bool is_rule = has_name && text_.substr(at_).starts_with("::=");
    at_ = begin;
    return is_rule;
  }

  int rule_id(std::string_view of) {
    const auto [known, is_new] = rule_ids_.try_emplace(std::string(of), 0);
    if (is_new) known->second = derivations_.add(std::string(of), at_);
    return known->second;
  }

  Result<std::string> read_rule() {
    if (!at_rule()) return refuse("a name and \"::=\"");
    const std::size_t begin = at_;
    const std::string_view of = name();
    if (std::ranges::find(kReserved, of) != kReserved.end() ||
        !defined_.insert(std::string(of)).second) {
      at_ = begin;
      return refuse("a name that is used for nothing else");
    }
    const int id = rule_id(of);
    derivations_.set_place(id, begin);
    skip_space();
    take("::=");
    LLM_TRY(const std::string body, choices(id, 0));
    if (at_ < text_.size() && !at_rule()) return refuse("an end of the rule");
    return fmt::format("{} ::= {}\n", of, body);
  }

  Result<std::string> choices(int id, std::size_t depth) {
    std::vector<std::string> all;
    do {
      LLM_TRY(std::string choice, sequence(id, depth));
      all.push_back(std::move(choice));
    } while (take("|"));
    return either(all);
  }

  Result<std::string> sequence(int id, std::size_t depth) {
    std::string text;
    std::vector<Element> elements;
    for (skip_space(); at_ < text_.size() && peek() != '|' && peek() != ')' && !at_rule();
         skip_space()) {
      LLM_TRY(const Part part, quantified(depth));
      text += (text.empty() ? "" : " ") + part.text;
      elements.push_back(part.element);
    }
    derivations_.add_choice(id, std::move(elements));
    return text.empty() ? "\"\"" : text;
  }

  Result<Part> quantified(std::size_t depth) {
    LLM_TRY(Part part, atom(depth));
    skip_space();
    Element& element = part.element;
    if (take("*")) {
      element.least = 0, element.most = -1;
    } else if (take("+")) {
      element.most = -1;
    } else if (take("?")) {
      element.least = 0;
    } else if (take("{")) {
      LLM_RETURN_IF_ERROR(counts(element));
    } else {
      return part;
    }
    skip_space();
    if (at_ < text_.size() && std::string_view("*+?{").find(peek()) != std::string_view::npos)
      return refuse("no quantifier of a quantifier");
    part.text = repeated(part.text, element.least, element.most);
    return part;
  }

  /// "n}", "n,}" or "n,m}".
  Status counts(Element& element) {
    LLM_TRY(element.least, count());
    element.most = element.least;
    element.is_counted = true;
    if (take(",")) {
      skip_space();
      element.most = -1;
      if (peek() != '}') {
        LLM_TRY(element.most, count());
        if (element.most < element.least) return refuse("no less than before it");
      }
    }
    return take("}") ? Status(Ok{}) : refuse("a closing brace");
  }

  Result<std::int64_t> count() {
    skip_space();
    std::int64_t value = -1;
    const char* begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error != std::errc() || value < 0 || value > kMostNumber)
      return refuse(fmt::format("a number in 0..{}", kMostNumber));
    at_ += static_cast<std::size_t>(end - begin);
    skip_space();
    return value;
  }

  Result<Part> atom(std::size_t depth) {
    if (take("(")) return group(depth + 1);
    if (take("\"")) return literal_text();
    if (take("[")) return char_class();
    const std::size_t begin = at_;
    const std::string_view of = name();
    const bool is_reserved = std::ranges::find(kReserved, of) != kReserved.end();
    if (of.empty() || is_reserved) {
      at_ = begin;
      return refuse("a text, a class, a group or the name of a rule");
    }
    const std::size_t end = std::exchange(at_, begin);
    Part part{std::string(of), {.rule = rule_id(of)}};
    named_at_.emplace(part.text, begin);
    at_ = end;
    return part;
  }

  Result<Part> group(std::size_t depth) {
    if (depth > kMostLevels)
      return refuse(fmt::format("at most {} levels of parentheses", kMostLevels));
    const int id = derivations_.add("", at_);
    LLM_TRY(const std::string inner, choices(id, depth));
    if (!take(")")) return refuse("a closing parenthesis");
    return Part{fmt::format("({})", inner), {.rule = id}};
  }

  Result<Part> literal_text() {
    std::string bytes;
    while (!take("\"")) {
      LLM_TRY(const char32_t code, character('"'));
      append_utf8(code, bytes);
    }
    return Part{literal(bytes), {.rule = bytes.empty() ? Element::kEmpty : Element::kText}};
  }

  Result<Part> char_class() {
    const bool is_negated = take("^");
    if (peek() == ']') return refuse("a class that is not empty");
    std::vector<CodeRange> ranges;
    while (!take("]")) {
      LLM_TRY(const char32_t low, character(']'));
      char32_t high = low;
      if (peek() == '-' && peek(1) != ']') {
        ++at_;
        LLM_TRY(high, character(']'));
        if (high < low) return refuse("a range of characters, ascending, before it");
      }
      ranges.emplace_back(low, high);
    }
    const CodeSet set(std::move(ranges));
    return Part{(is_negated ? CodeSet::all().without(set) : set).text(), {.rule = Element::kText}};
  }

  /// @param closing  of the text or class
  Result<char32_t> character(char closing) {
    if (at_ >= text_.size() || peek() == '\n' || peek() == '\r')
      return refuse(fmt::format("a closing {} in the line", closing == '"' ? "quote" : "bracket"));
    if (peek() == '\0') return refuse("no character U+0000 (write \\x00)");
    if (take("\\")) return escape();
    const std::size_t size = utf8_head(text_.substr(at_)).size;
    const char32_t code = utf8_code_point(text_.substr(at_, size));
    at_ += size;
    return code;
  }

  Result<char32_t> escape() {
    constexpr std::string_view kLetters = "abefnrtv0";
    constexpr std::string_view kCodes("\a\b\x1B\f\n\r\t\v\0", 9);
    constexpr std::string_view kThemselves = "\"'\\/?^$.*+()[]{}|-";
    const char letter = peek();
    if (letter == 'x' || letter == 'u' || letter == 'U')
      return hexadecimal(letter == 'x' ? 2 : letter == 'u' ? 4 : 8);
    const std::size_t which = kLetters.find(letter);
    if (at_ >= text_.size() ||
        (which == std::string_view::npos && kThemselves.find(letter) == std::string_view::npos))
      return refuse("one of the escapes that docs/structured_output.md names");
    ++at_;
    return static_cast<unsigned char>(which == std::string_view::npos ? letter : kCodes[which]);
  }

  Result<char32_t> hexadecimal(std::size_t n_digits) {
    const std::string_view digits = text_.substr(std::min(at_ + 1, text_.size()), n_digits);
    std::uint32_t code = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (digits.size() != n_digits || error != std::errc() || end != digits.data() + n_digits ||
        code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      return refuse(
          fmt::format("{} hexadecimal digits of a character, at most 10ffff and no "
                      "surrogate",
                      n_digits));
    at_ += 1 + n_digits;
    return static_cast<char32_t>(code);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  Derivations derivations_;
  std::map<std::string, int> rule_ids_;
  std::set<std::string> defined_;
  std::map<std::string, std::size_t> named_at_;  ///< where rules are named first
};

}  // namespace

Result<std::string> read_grammar(std::string_view text) { return GrammarReader(text).read(); }

}  // namespace llm
