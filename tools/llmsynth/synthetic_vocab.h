#ifndef LLM_TOOLS_LLMSYNTH_SYNTHETIC_VOCAB_H_
#define LLM_TOOLS_LLMSYNTH_SYNTHETIC_VOCAB_H_

#include <cstdint>

#include "engine/gguf/gguf_writer.h"

namespace llm {

/// Adds the tokenizer.ggml.* entries of a made-up SentencePiece BPE vocabulary of `n_vocab` tokens:
/// <unk>, <s>, </s>, the 256 bytes, single characters, then pieces that each join two earlier ones
/// (so that every piece can be reached by merges), in falling score.
/// @pre n_vocab >= 400
void add_synthetic_vocab(GgufWriter& writer, std::uint64_t n_vocab, std::uint64_t seed);

}  // namespace llm

#endif  // LLM_TOOLS_LLMSYNTH_SYNTHETIC_VOCAB_H_
