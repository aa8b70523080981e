#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/encode_options.h"
#include "tokenizer/vocab_spec.h"

namespace llm {

/// What SentencePiece and byte-level BPE do differently, behind Tokenizer. Immutable.
class TextModel {
 public:
  virtual ~TextModel() = default;

  /// Appends the ids of a text in which control tokens are no more than text.
  /// @pre !text.empty()
  virtual void append_text(std::string_view text, const EncodeOptions& options,
                           std::vector<TokenId>& ids) const = 0;

  /// The bytes that a token of any kind but control and unknown adds to a text.
  virtual std::string bytes_of(TokenId id) const = 0;

  /// The token of that spelling; control and unknown tokens come first.
  virtual std::optional<TokenId> find(std::string_view spelling) const = 0;
};

}  // namespace llm
