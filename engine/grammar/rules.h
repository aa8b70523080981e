#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace llm {

/// A grammar's text in xgrammar's EBNF as it is written. Equal rules are one.
class RuleText {
 public:
  /// The name of a rule of that body.
  std::string rule(const std::string& body);
  /// A name whose body is set later, so that it may stand in itself.
  std::string declare() { return name_of(n_rules_++); }
  void define(const std::string& name, const std::string& body);
  /// A rule of a fixed name, which no other has.
  void define_once(const std::string& name, const std::string& body);
  std::size_t size() const { return text_.size(); }
  /// The whole, of which `body` is the root.
  std::string finish(const std::string& body) const { return "root ::= " + body + "\n" + text_; }

 private:
  static std::string name_of(std::size_t number) { return "r" + std::to_string(number); }

  std::string text_;
  std::size_t n_rules_ = 0;
  std::map<std::string, std::string> known_;  ///< names by body
  std::set<std::string> fixed_;
};

/// Exactly these bytes, which are UTF-8.
std::string literal(std::string_view bytes);
/// One of them; what none of them is where there is none.
std::string either(const std::vector<std::string>& choices);
/// `what` from `least` to `most` times. @param most  below 0: any number
std::string repeated(const std::string& what, std::int64_t least, std::int64_t most);

/// Code points, as disjoint ranges, ascending, both ends included; no surrogate among them.
using CodeRange = std::pair<char32_t, char32_t>;
class CodeSet {
 public:
  CodeSet() = default;
  explicit CodeSet(std::vector<CodeRange> ranges);
  static CodeSet all() { return CodeSet({{0, 0x10FFFF}}); }

  CodeSet with(const CodeSet& other) const;
  CodeSet without(const CodeSet& other) const;
  bool contains(char32_t code) const;
  bool empty() const { return ranges_.empty(); }
  /// @pre not empty
  char32_t first() const { return ranges_.front().first; }
  /// A character class; of none, one that nothing is in.
  std::string text() const;

 private:
  std::vector<CodeRange> ranges_;
};

/// One character of `set` in a JSON string, which may have to be escaped there. Control characters
/// that JSON has no letter for are left out; empty where nothing is left.
std::string json_character(const CodeSet& set);

}  // namespace llm
