#include "engine/grammar/derivations.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace llm {
namespace {

constexpr int kMostRepeatedRules = 64;
constexpr std::size_t kMostSearched = 20'000'000;

}  // namespace

int Derivations::add(std::string name, std::size_t at) {
  rules_.push_back({std::move(name), at, {}});
  return static_cast<int>(rules_.size()) - 1;
}

void Derivations::add_choice(int rule, std::vector<Element> elements) {
  of(rule).choices.push_back(std::move(elements));
}

bool Derivations::can_be_empty(const Element& element) const {
  return element.least == 0 || element.rule == Element::kEmpty ||
         (element.rule >= 0 && nullable_[static_cast<std::size_t>(element.rule)]);
}

Error Derivations::refuse(std::string_view text, int rule, std::string_view what) const {
  const auto line = 1 + std::ranges::count(text.substr(0, of(rule).at), '\n');
  const std::string& name = of(rule).name;
  return Error{ErrorCode::kUsage, "",
               fmt::format("found {} in line {} of the grammar, which {}",
                           name.empty() ? "a group" : fmt::format("rule {}", name), line, what)};
}

/// The rule whose counted repetition a rule begins with; -1: none.
int Derivations::repeats_first(int rule) const {
  const auto is_group = [this](int id) { return id >= 0 && of(id).name.empty(); };
  const auto first = [this](int id) -> const Element* {
    return of(id).choices.front().empty() ? nullptr : &of(id).choices.front().front();
  };
  const Element* element = first(rule);
  while (element != nullptr && !element->is_counted && is_group(element->rule))
    element = first(element->rule);
  if (element == nullptr || !element->is_counted) return -1;
  int target = element->rule;
  while (is_group(target) && of(target).choices.size() == 1 &&
         of(target).choices.front().size() == 1)
    target = of(target).choices.front().front().rule;
  return target;
}

Status Derivations::check_repetitions(std::string_view text) const {
  for (int rule = 0; rule < static_cast<int>(rules_.size()); ++rule) {
    int next = repeats_first(rule);
    for (int steps = 1; next >= 0; ++steps, next = repeats_first(next)) {
      if (next == rule || steps == kMostRepeatedRules)
        return refuse(
            text, rule,
            fmt::format(
                "begins with a repetition of itself, or of a rule that does; need one that begins "
                "differently, and at most {} rules that begin with a repetition of the next",
                kMostRepeatedRules));
    }
  }
  return Ok{};
}

void Derivations::find_nullable() {
  nullable_.assign(rules_.size(), false);
  std::vector<std::vector<int>> users(rules_.size());
  for (std::size_t rule = 0; rule < rules_.size(); ++rule) {
    for (const auto& choice : rules_[rule].choices) {
      for (const Element& element : choice)
        if (element.rule >= 0)
          users[static_cast<std::size_t>(element.rule)].push_back(static_cast<int>(rule));
    }
  }
  std::vector<int> waiting(rules_.size());
  for (std::size_t rule = 0; rule < rules_.size(); ++rule) waiting[rule] = static_cast<int>(rule);
  while (!waiting.empty()) {
    const auto rule = static_cast<std::size_t>(waiting.back());
    waiting.pop_back();
    if (nullable_[rule]) continue;
    nullable_[rule] = std::ranges::any_of(rules_[rule].choices, [this](const auto& choice) {
      return std::ranges::all_of(choice, [this](const Element& e) { return can_be_empty(e); });
    });
    if (nullable_[rule]) waiting.insert(waiting.end(), users[rule].begin(), users[rule].end());
  }
}

/// For each rule those that derive it and nothing else, in one step.
std::vector<std::vector<int>> Derivations::leading_to() const {
  std::vector<std::vector<int>> all(rules_.size());
  for (std::size_t rule = 0; rule < rules_.size(); ++rule) {
    for (const auto& choice : rules_[rule].choices) {
      const auto n_full =
          std::ranges::count_if(choice, [this](const Element& e) { return !can_be_empty(e); });
      for (const Element& element : choice) {
        const bool is_full = !can_be_empty(element);
        if (element.rule < 0 || element.most == 0 || n_full > (is_full ? 1 : 0)) continue;
        if (is_full && element.least > 1) continue;
        all[static_cast<std::size_t>(element.rule)].push_back(static_cast<int>(rule));
      }
    }
  }
  return all;
}

/// Whether a choice of the rule derives it twice. @param leads  which rules derive it and nothing
/// else
bool Derivations::doubles(int rule, const std::vector<bool>& leads) const {
  return std::ranges::any_of(of(rule).choices, [&](const std::vector<Element>& choice) {
    std::int64_t times = 0;
    for (const Element& element : choice) {
      const bool is_one = element.rule >= 0 && leads[static_cast<std::size_t>(element.rule)];
      if (!is_one && !can_be_empty(element)) return false;
      if (is_one) times += element.most < 0 ? 2 : std::min<std::int64_t>(element.most, 2);
    }
    return times >= 2;
  });
}

Status Derivations::check(std::string_view text) {
  LLM_RETURN_IF_ERROR(check_repetitions(text));
  find_nullable();
  const std::vector<std::vector<int>> before = leading_to();
  const std::vector<bool> any(rules_.size(), true);
  std::size_t steps = 0;
  for (int rule = 0; rule < static_cast<int>(rules_.size()); ++rule) {
    if (!doubles(rule, any)) continue;
    std::vector<bool> leads(rules_.size());
    leads[static_cast<std::size_t>(rule)] = true;
    std::vector<int> waiting = {rule};
    steps += rules_.size() / 64;
    while (!waiting.empty() && steps <= kMostSearched) {
      const int next = waiting.back();
      waiting.pop_back();
      for (const int from : before[static_cast<std::size_t>(next)]) {
        ++steps;
        if (leads[static_cast<std::size_t>(from)]) continue;
        leads[static_cast<std::size_t>(from)] = true;
        waiting.push_back(from);
      }
    }
    if (steps > kMostSearched) return Ok{};
    if (doubles(rule, leads))
      return refuse(text, rule,
                    "consists of itself twice, so the same output has very many parses; need a "
                    "rule with a repetition instead, such as a ::= b+ for a ::= a a | b");
  }
  return Ok{};
}

}  // namespace llm
