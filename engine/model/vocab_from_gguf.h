#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/gguf/gguf_file.h"
#include "tokenizer/vocab_spec.h"

namespace llm {

/// The vocabulary, SentencePiece's or of byte-level BPE, in the `tokenizer.ggml.*` metadata; works
/// on vocab-only GGUFs (no tensors). What a tokenizer can live with (invalid UTF-8, empty or
/// repeated pieces) is appended to `warnings`, one line a kind. Errors: kMalformed naming key and
/// token id; kUnsupported for another kind of tokenizer, or a pre-tokenizer that is not known. Ids
/// of bos, eos and unknown that the file does not give are, with SentencePiece, its own (1, 2, 0)
/// where the token there is of that kind, and none else.
Result<VocabSpec> vocab_from_gguf(const GgufFile& gguf, std::vector<std::string>& warnings);

/// tokenizer.chat_template, or nothing. Errors: kUnsupported above 1 MiB.
Result<std::string_view> chat_template_from_gguf(const GgufFile& gguf);

}  // namespace llm
