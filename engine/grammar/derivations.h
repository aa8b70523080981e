#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llm {

/// What the rules of a grammar derive, as far as it decides whether they can be used.
class Derivations {
 public:
  /// A rule or a text, repeated.
  struct Element {
    static constexpr int kText = -1;
    static constexpr int kEmpty = -2;
    int rule = kText;
    std::int64_t least = 1;
    std::int64_t most = 1;    ///< below 0: any number
    bool is_counted = false;  ///< by {n,m}
  };

  /// @param name  empty: a group. @param at  where it stands in the text. @return its number
  int add(std::string name, std::size_t at);
  void set_place(int rule, std::size_t at) { of(rule).at = at; }
  void add_choice(int rule, std::vector<Element> elements);

  /// Errors: kUsage naming a rule that derives itself twice and nothing else, one that begins with
  /// a counted repetition of itself (xgrammar would expand it for ever), too many of these in turn.
  /// What doubles itself and would take long to find passes: GrammarState bounds its work as well.
  Status check(std::string_view text);

 private:
  struct Rule {
    std::string name;
    std::size_t at;
    std::vector<std::vector<Element>> choices;
  };

  Rule& of(int rule) { return rules_[static_cast<std::size_t>(rule)]; }
  const Rule& of(int rule) const { return rules_[static_cast<std::size_t>(rule)]; }
  bool can_be_empty(const Element& element) const;
  Error refuse(std::string_view text, int rule, std::string_view what) const;
  int repeats_first(int rule) const;
  Status check_repetitions(std::string_view text) const;
  void find_nullable();
  std::vector<std::vector<int>> leading_to() const;
  bool doubles(int rule, const std::vector<bool>& leads) const;

  std::vector<Rule> rules_;
  std::vector<bool> nullable_;  ///< which rules derive the empty text
};

}  // namespace llm
