#pragma once

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

/// How text becomes tokens (docs/tokenizer.md).
enum class TokenizerKind { kSentencePiece, kByteBpe };

/// A vocabulary as plain data; knows nothing of the file it came from.
struct VocabSpec {
  struct Token {
    /// Spelling in UTF-8. SentencePiece: spaces are U+2581. Byte-level BPE: normal tokens have one
    /// character of GPT-2's alphabet for each byte.
    std::string text;
    float score = 0;  ///< SentencePiece: higher merges first
    TokenKind kind = TokenKind::kNormal;
  };
  /// `left` and `right` side by side become `joined`, whose spelling is both of theirs.
  struct Merge {
    TokenId left = 0;
    TokenId right = 0;
    TokenId joined = 0;
  };
  /// Tokens of fill-in-the-middle. A model that was trained for it continues prefix, text before
  /// the gap, suffix, text after it, middle with the text of the gap.
  struct FillInMiddle {
    std::optional<TokenId> prefix;
    std::optional<TokenId> suffix;
    std::optional<TokenId> middle;
    std::optional<TokenId> pad;
    std::optional<TokenId> repository;      ///< a repository's name follows
    std::optional<TokenId> file_separator;  ///< another file follows
  };

  TokenizerKind tokenizer = TokenizerKind::kSentencePiece;
  std::string pre_tokenizer;  ///< byte-level BPE: a name in tokenizer/pre_tokenizer_rules.h
  /// Index = rank, lower merges first. Byte-level BPE; also pieces of SentencePiece's form that
  /// merge by rank and not by score (Gemma 4), where runs of newlines stand apart.
  std::vector<Merge> merges;
  std::vector<Token> tokens;  ///< index = token id
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  std::optional<TokenId> unknown;
  FillInMiddle fim;
  /// Tokens that end a reply, ascending: eos, ends of turns, fim's pad, repository and separator.
  std::vector<TokenId> end_of_generation;
  bool add_bos = true;
  bool add_eos = false;
  bool add_space_prefix = true;  ///< SentencePiece: the dummy prefix
};

}  // namespace llm
