#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llm {

struct RequestLengths {
  std::size_t n_prompt;
  std::size_t n_output;

  bool operator==(const RequestLengths&) const = default;
};

/// How long prompts and outputs are: a weighted list of classes, in each of which both lengths are
/// uniform in a range. A file is a JSON array of such objects (docs/load.md):
///
///   {"weight": 5, "prompt": [8, 48], "output": [16, 64]}
class LengthDistribution {
 public:
  static constexpr std::size_t kMostClasses = 100000;
  static constexpr std::size_t kMostTokens = std::size_t{1} << 20;  ///< of a length

  /// Errors: kMalformed naming the class by its index, the member, what was found and the rule.
  static Result<LengthDistribution> parse(std::string_view json);
  /// Errors: as parse(), with the file; kIo; kResource for a file above 16 MiB.
  static Result<LengthDistribution> read(const std::string& path);
  /// lengths.json, which is part of the program.
  static LengthDistribution usual();

  /// @param choice, prompt, output  uniform in [0, 1)
  RequestLengths draw(double choice, double prompt, double output) const;

  /// Tokens of the longest request, prompt and output together.
  std::size_t longest_request() const;

 private:
  struct Range {
    std::size_t first;
    std::size_t last;
    std::size_t at(double share) const;
  };
  struct Class {
    double up_to;  ///< sum of the weights so far
    Range prompt;
    Range output;
  };
  template <typename Json>
  static Result<Range> parse_range(const Json& entry, const std::string& place, const char* name);

  std::vector<Class> classes_;
};

}  // namespace llm
