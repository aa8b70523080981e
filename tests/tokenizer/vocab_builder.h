#pragma once

#include "tests/support/test.h"
#include "tokenizer/tokenizer.h"

namespace llm {

/// Ids: <unk> 0, <s> 1, </s> 2, then <0x00>.. = 3..258 (with bytes), then pieces as added.
class VocabBuilder {
 public:
  enum class Bytes { kYes, kNo };

  explicit VocabBuilder(Bytes bytes = Bytes::kYes) {
    add("<unk>", 0, TokenKind::kUnknown);
    add("<s>", 0, TokenKind::kControl);
    add("</s>", 0, TokenKind::kControl);
    for (int byte = 0; bytes == Bytes::kYes && byte < 256; ++byte) {
      add(fmt::format("<0x{:02X}>", byte), 0, TokenKind::kByte);
    }
    spec.unknown = 0;
    spec.bos = 1;
    spec.eos = 2;
    spec.end_of_generation = {2};
  }

  /// Without BOS and space prefix: a text is its pieces.
  static VocabBuilder bare(Bytes bytes = Bytes::kYes) {
    VocabBuilder builder(bytes);
    builder.spec.add_bos = builder.spec.add_space_prefix = false;
    return builder;
  }

  TokenId add(std::string text, float score = 0, TokenKind kind = TokenKind::kNormal) {
    spec.tokens.push_back({std::move(text), score, kind});
    return static_cast<TokenId>(spec.tokens.size()) - 1;
  }

  Tokenizer build() const { return test::require_ok(Tokenizer::create(spec)); }

  VocabSpec spec;
};

inline constexpr TokenId kBos = 1;
inline constexpr TokenId kEos = 2;
inline constexpr TokenId kByte0 = 3;  ///< id of <0x00>

using Ids = std::vector<TokenId>;

inline TokenId byte_id(char c) { return kByte0 + static_cast<unsigned char>(c); }

/// Special tokens, ids from 259, and no pieces but bytes; a text has no space in front.
inline Tokenizer tokenizer_with(const std::vector<std::string>& special,
                                TokenKind kind = TokenKind::kControl) {
  VocabBuilder builder;
  builder.spec.add_space_prefix = false;
  for (const std::string& spelling : special) builder.add(spelling, 0, kind);
  return builder.build();
}

}  // namespace llm
