#pragma once

#include <string>

#include "tokenizer/vocab_spec.h"

namespace llm {

/// Identifies the tokens of a vocabulary: SHA-256, hex, over every entry in id order as u32 byte
/// length, the bytes, f32 score, i32 kind, all little-endian. Empty string for an empty vocabulary.
/// The `tokenizer_hash` of activation dumps.
std::string tokenizer_hash(const VocabSpec& vocab);

/// Identifies how byte-level BPE makes these tokens of a text: SHA-256, hex, over the name of the
/// pre-tokenizer and every merge in the order of ranks ("left right", as the file has it), each as
/// u32 byte length, little-endian, and the bytes. Empty string for other kinds of vocabularies. The
/// `merges_hash` of activation dumps; a hash of its own, because dumps were made before there was
/// one.
std::string merges_hash(const VocabSpec& vocab);

}  // namespace llm
