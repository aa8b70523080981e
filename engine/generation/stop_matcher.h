#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace llm {

/// Finds stop strings in a text that arrives in pieces, wherever the borders of the pieces fall.
/// Text that may be the beginning of a stop string is held back until that is decided.
class StopMatcher {
 public:
  /// Empty strings are ignored.
  explicit StopMatcher(std::vector<std::string> stops);

  /// Takes the next piece. @return text that precedes every possible stop string; may be empty
  /// @pre !matched()
  std::string push(std::string_view piece);
  /// Whether a stop string came. Neither it nor what follows is ever given out.
  bool matched() const { return matched_; }
  /// The end of the text: what is still held back.
  std::string flush();

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool matched_ = false;
};

}  // namespace llm
