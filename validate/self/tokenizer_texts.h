#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tokenizer/vocab_spec.h"

namespace llm {

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
