#ifndef LLM_TOKENIZER_VOCAB_SPEC_H_
#define LLM_TOKENIZER_VOCAB_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace llm {

using TokenId = std::int32_t;

/// What a vocabulary entry is for. The values are GGUF's tokenizer.ggml.token_type.
enum class TokenKind : std::int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      ///< <s>, </s>: parsed from text only when asked
  kUserDefined = 4,  ///< matched in text before merging
  kUnused = 5,
  kByte = 6,  ///< <0x00> .. <0xFF>, the byte fallback
};

/// A SentencePiece BPE vocabulary as plain data; knows nothing of the file it came from.
struct VocabSpec {
  struct Token {
    std::string text;  ///< piece in UTF-8, spaces written as U+2581
    float score = 0;   ///< higher merges first
    TokenKind kind = TokenKind::kNormal;
  };

  std::vector<Token> tokens;  ///< index = token id
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  std::optional<TokenId> unknown;
  std::vector<TokenId> end_of_generation;  ///< eos and other ids that end a reply (eot), ascending
  bool add_bos = true;
  bool add_eos = false;
  bool add_space_prefix = true;
};

}  // namespace llm

#endif  // LLM_TOKENIZER_VOCAB_SPEC_H_
