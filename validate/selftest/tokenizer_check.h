#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"
#include "tokenizer/vocab_spec.h"
#include "validate/report/report.h"

namespace llm {

/// What is checked; a test puts wrong ones in.
struct TokenizerFunctions {
  std::function<std::vector<TokenId>(std::string_view, const EncodeOptions&)> encode;
  std::function<std::string(std::span<const TokenId>, const DecodeOptions&)> decode;
  /// The text that each id adds, and what is left at the end: ids + 1 texts.
  std::function<std::vector<std::string>(std::span<const TokenId>)> stream;
};
TokenizerFunctions tokenizer_functions(const Tokenizer& tokenizer);

struct TokenizerCheckOptions {
  std::size_t n_texts = 600;         ///< of every kind in tokenizer_texts.cpp
  std::size_t n_equal_scores = 200;  ///< texts in which equal scores compete, at most
  std::uint64_t seed = 1;
};

/// Compares a tokenizer with the rules of docs/tokenizer.md in plain loops (NaiveTokenizer) on
/// generated texts: ids, with the vocabulary's own options and with others; the text of these ids,
/// of drawn ids and of ids one by one; and that the ids of a text give it back. A failed check
/// shows the shortest text that differs. Says how many texts have byte tokens, and in how many the
/// order among equal scores matters.
/// Cost: a second for a vocabulary of 128,000 tokens.
std::vector<CheckResult> check_tokenizer(const VocabSpec& spec, const TokenizerFunctions& functions,
                                         const TokenizerCheckOptions& options = {});

/// Texts that try a tokenizer: words, repeated characters, spaces, digits, accents, combining
/// marks, CJK, emoji joined by ZWJ, any code points, bytes that are no UTF-8, texts cut inside a
/// character, joined pieces of the vocabulary, words that begin and end alike, and spellings of its
/// special tokens; of 0 to 200 characters, the words up to 700. The same arguments give the same
/// texts everywhere.
std::vector<std::string> tokenizer_texts(const VocabSpec& spec, std::size_t n, std::uint64_t seed);

/// Texts in which neighbouring merges of one score compete: two pieces of equal score, the end of
/// one being the beginning of the other and written once. A piece that ends as it begins competes
/// with itself. None: no equal scores.
/// @return n texts, drawn from all; where there are fewer, after drawn characters, too
std::vector<std::string> equal_score_texts(const VocabSpec& spec, std::size_t n,
                                           std::uint64_t seed);

}  // namespace llm
