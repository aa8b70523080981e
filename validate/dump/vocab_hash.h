#ifndef LLM_VALIDATE_DUMP_VOCAB_HASH_H_
#define LLM_VALIDATE_DUMP_VOCAB_HASH_H_

#include <string>

#include "tokenizer/vocab_spec.h"

namespace llm {

/// Identifies a vocabulary: SHA-256, hex, over every entry in id order as u32 byte length, the
/// bytes, f32 score, i32 kind, all little-endian. Empty string for an empty vocabulary. The
/// `tokenizer_hash` of activation dumps.
std::string tokenizer_hash(const VocabSpec& vocab);

}  // namespace llm

#endif  // LLM_VALIDATE_DUMP_VOCAB_HASH_H_
