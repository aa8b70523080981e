#pragma once

#include <string>

#include "base/result.h"
#include "engine/grammar/grammar.h"
#include "tokenizer/tokenizer.h"

namespace llm {

/// A grammar in xgrammar's EBNF with the rule `root`. Errors: those of Grammar::compile().
Result<std::string> ebnf_of(const GrammarSource& source, const Tokenizer& tokenizer);

}  // namespace llm
