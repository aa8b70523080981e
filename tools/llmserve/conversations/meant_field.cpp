// Which field a name that no table has is a slip for.

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include "tools/llmserve/conversations/json_fields.h"

namespace llm {
namespace {

constexpr std::size_t kShortName = 4;  // below it, only case and '_' may differ
constexpr std::size_t kLongName = 8;   // from it on, two letters
constexpr std::size_t kMostName = 60;

std::string letters_of(std::string_view name) {
  std::string letters;
  for (const char c : name.substr(0, kMostName)) {
    if (c != '_' && c != '-')
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return letters;
}

/// Letters that are other, missing or too many, at least; two that changed places count as one.
/// (Damerau 1964, in the form that changes no part twice.)
std::size_t distance_of(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t other = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + other});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

bool is_same_name(std::string_view one, std::string_view other) {
  return letters_of(one) == letters_of(other);
}

std::string meant_field(std::string_view name, const std::set<std::string>& known) {
  // Words of settings that change a text, in whatever engine.
  static constexpr std::array<std::string_view, 8> kWords = {
      "penalty", "temperature", "mirostat", "logit", "grammar", "schema", "sampl", "top_"};
  const std::string letters = letters_of(name);
  for (const std::string& one : known) {
    const std::string other = letters_of(one);
    const std::size_t size = std::min(letters.size(), other.size());
    const std::size_t most = size < kShortName ? 0 : size < kLongName ? 1 : 2;
    if (distance_of(letters, other) <= most) return one;
  }
  const auto word = std::ranges::find_if(
      kWords, [&](std::string_view one) { return name.find(one) != std::string_view::npos; });
  return word == kWords.end() ? "" : "a field of docs/fields.md";
}

}  // namespace llm
