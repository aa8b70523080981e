#pragma once

#include "base/result.h"
#include "engine/gguf/gguf_file.h"
#include "tokenizer/vocab_spec.h"

namespace llm {

/// Reads which tokens of `vocab` have a part of their own: bos, eos, unknown, those of
/// fill-in-the-middle and the ends of generation. An id that the file does not give is, with
/// SentencePiece, its own (1, 2, 0) where the token there is of that kind; a token of
/// fill-in-the-middle is found by its text (docs/tokenizer.md).
/// Errors: kMalformed naming the key where an id is outside the vocabulary.
/// @pre vocab.tokens and vocab.tokenizer are read
Status read_special_tokens(const GgufFile& gguf, VocabSpec& vocab);

}  // namespace llm
