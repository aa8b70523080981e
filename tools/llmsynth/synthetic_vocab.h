#pragma once

#include <cstdint>
#include <string_view>

#include "engine/gguf/gguf_writer.h"

namespace llm {

/// Adds the tokenizer.ggml.* entries of a made-up SentencePiece BPE vocabulary of `n_vocab` tokens:
/// <unk>, <s>, </s>, the 256 bytes, single characters, then pieces that each join two earlier ones
/// (so that every piece can be reached by merges), in falling score.
/// @pre n_vocab >= 400
void add_synthetic_vocab(GgufWriter& writer, std::uint64_t n_vocab, std::uint64_t seed);

/// The same of a made-up byte-level BPE vocabulary: the 256 characters of GPT-2's alphabet, pieces
/// that each join two earlier ones, and their merges in that order; last <|begin_of_text|> and
/// <|end_of_text|>.
/// @param pre_tokenizer  tokenizer.ggml.pre
/// @pre n_vocab >= 400
void add_synthetic_byte_vocab(GgufWriter& writer, std::uint64_t n_vocab, std::uint64_t seed,
                              std::string_view pre_tokenizer);

}  // namespace llm
