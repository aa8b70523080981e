#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "engine/grammar/grammar.h"
#include "tokenizer/tokenizer.h"

namespace llm {

/// A grammar in xgrammar's EBNF with the rule `root`.
struct Ebnf {
  std::string text;
  std::vector<TokenId> control = {};  ///< control tokens that stand in it
};
/// Those that have a spelling.
std::vector<TokenId> control_tokens(const Tokenizer& tokenizer);

/// Errors: those of Grammar::compile().
Result<Ebnf> ebnf_of(const GrammarSource& source, const Tokenizer& tokenizer);

}  // namespace llm
