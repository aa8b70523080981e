#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/pre_tokenizer_rules.h"

struct pcre2_real_code_8;

namespace llm {

/// Splits text into the pieces in which tokens merge, by the regular expressions of a rule, which
/// PCRE2 compiles (to machine code where the system allows it). Immutable.
class Splitter {
 public:
  /// Errors: kUnsupported where PCRE2 lacks what the expressions need.
  static Result<Splitter> create(const PreTokenizerRule& rule);

  /// The ends of the pieces of `text`, ascending; the last is text.size().
  /// Cost: linear in the text for every rule: no expression looks at a run more than a few times.
  /// @pre text is UTF-8, not empty and shorter than 4 GiB
  std::vector<std::uint32_t> split(std::string_view text) const;

 private:
  struct FreeCode {
    void operator()(pcre2_real_code_8* code) const;
  };
  using Code = std::unique_ptr<pcre2_real_code_8, FreeCode>;

  explicit Splitter(std::vector<Code> passes) : passes_(std::move(passes)) {}

  std::vector<Code> passes_;
};

}  // namespace llm
