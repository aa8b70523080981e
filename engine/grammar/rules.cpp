#include "engine/grammar/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace llm {

std::string RuleText::rule(const std::string& body) {
  const auto [known, is_new] = known_.try_emplace(body);
  if (is_new) {
    known->second = declare();
    define(known->second, body);
  }
  return known->second;
}

void RuleText::define(const std::string& name, const std::string& body) {
  text_ += fmt::format("{} ::= {}\n", name, body);
}

void RuleText::define_once(const std::string& name, const std::string& body) {
  if (fixed_.insert(name).second) define(name, body);
}

std::string literal(std::string_view bytes) {
  std::string text = "\"";
  for (const char c : bytes) {
    if (c == '"' || c == '\\') {
      text += {'\\', c};
    } else if (const auto code = static_cast<unsigned char>(c); code < 0x20 || code == 0x7F) {
      text += fmt::format("\\u{:04x}", code);  // of \\x it takes all digits that follow
    } else {
      text += c;
    }
  }
  return text + '"';
}

std::string either(const std::vector<std::string>& choices) {
  if (choices.empty()) return CodeSet().text();
  if (choices.size() == 1) return choices.front();
  return fmt::format("({})", fmt::join(choices, " | "));
}

std::string repeated(const std::string& what, std::int64_t least, std::int64_t most) {
  if (most == 0) return "\"\"";
  if (least == 1 && most == 1) return what;
  if (most >= 0) return fmt::format("({}){{{},{}}}", what, least, most);
  if (least <= 1) return fmt::format("({}){}", what, least == 0 ? "*" : "+");
  return fmt::format("({}){{{},}}", what, least);
}

CodeSet::CodeSet(std::vector<CodeRange> ranges) {
  std::ranges::sort(ranges);
  for (const auto& [low, high] : ranges) {
    if (!ranges_.empty() && low <= ranges_.back().second + 1) {
      ranges_.back().second = std::max(ranges_.back().second, high);
    } else {
      ranges_.emplace_back(low, high);
    }
  }
}

CodeSet CodeSet::with(const CodeSet& other) const {
  std::vector<CodeRange> both = ranges_;
  both.insert(both.end(), other.ranges_.begin(), other.ranges_.end());
  return CodeSet(std::move(both));
}

CodeSet CodeSet::without(const CodeSet& other) const {
  std::vector<CodeRange> left;
  for (auto [low, high] : ranges_) {
    for (const auto& [from, to] : other.ranges_) {
      if (to < low || from > high) continue;
      if (from > low) left.emplace_back(low, from - 1);
      low = to + 1;
    }
    if (low <= high) left.emplace_back(low, high);
  }
  return CodeSet(std::move(left));
}

bool CodeSet::contains(char32_t code) const {
  return std::ranges::any_of(
      ranges_, [code](const CodeRange& r) { return r.first <= code && code <= r.second; });
}

std::string CodeSet::text() const {
  const CodeSet printed = without(CodeSet({{0xD800, 0xDFFF}}));
  if (printed.empty()) return "[^\\U00000000-\\U0010ffff]";
  std::string text = "[";
  for (const auto& [low, high] : printed.ranges_) {
    text += fmt::format("\\U{:08x}", static_cast<std::uint32_t>(low));
    if (low < high) text += fmt::format("-\\U{:08x}", static_cast<std::uint32_t>(high));
  }
  return text + "]";
}

std::string json_character(const CodeSet& set) {
  constexpr std::array<std::pair<char32_t, char>, 7> kEscapes = {
      {{'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}}};
  std::vector<std::string> choices;
  const CodeSet raw = set.without(CodeSet({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}));
  if (!raw.empty()) choices.push_back(raw.text());
  for (const auto& [code, letter] : kEscapes) {
    if (set.contains(code)) choices.push_back(literal(std::string{'\\', letter}));
  }
  return choices.empty() ? "" : either(choices);
}

}  // namespace llm
