#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace llm {

/// A gap in a text, and what a model is told of it.
struct Gap {
  struct File {
    std::string name;
    std::string text;
  };
  std::string before;
  std::string after;
  std::vector<File> files = {};  ///< other ones, the least important first
  bool parse_special = false;    ///< spellings of special tokens in the texts are those tokens
};

/// Ids that ask for the text of a gap, in the order prefix, suffix, middle:
///
///   [BOS] [files] FIM_PRE before FIM_SUF after FIM_MID
///
/// A file is FIM_SEP name "\n" text, after FIM_REP and a repository's name; without these tokens a
/// line "--- name ---" and the text. Files that `most` tokens do not hold are left out, the first
/// ones first.
/// @param field  of the request that asks for it
/// Errors: kUsage where the vocabulary has no tokens for it.
Result<std::vector<TokenId>> fill_in_prompt(const Tokenizer& tokenizer, const Gap& gap,
                                            std::size_t most, const std::string& field);

}  // namespace llm
