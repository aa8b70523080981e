#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tokenizer/pre_tokenizer_rules.h"
#include "tokenizer/vocab_spec.h"

namespace llm {

/// How a vocabulary of byte-level BPE agrees with a rule by which text might have been split when
/// its merges were learned. Only normal tokens of ASCII are looked at: published vocabularies are
/// at odds with their own rules elsewhere (Qwen2's has marks that its rule splits off).
struct RuleFit {
  const PreTokenizerRule* rule = nullptr;
  std::size_t strays = 0;  ///< tokens that the rule splits, so that no text gives them
  /// The rule leaves longer numbers whole than any of which the vocabulary has tokens.
  bool joins_numbers = false;
  std::string example = {};  ///< a stray, spelled as the text it stands for
  bool fits = false;         ///< neither
};

struct RuleFits {
  std::size_t n_tokens = 0;    ///< that were looked at
  std::vector<RuleFit> rules;  ///< of all_pre_tokenizer_rules(), in that order
  const RuleFit& of(const PreTokenizerRule& rule) const;
};

/// Errors: kUnsupported where PCRE2 lacks what an expression needs.
/// Cost: some 10 ms for each different rule and 100,000 tokens.
Result<RuleFits> fit_rules(std::span<const VocabSpec::Token> tokens);

}  // namespace llm
