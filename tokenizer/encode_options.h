#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace llm {

/// What encode() adds and recognises. An unset option is as the vocabulary says.
struct EncodeOptions {
  std::optional<bool> add_bos = std::nullopt;  ///< ignored if there is no BOS token
  std::optional<bool> add_eos = std::nullopt;  ///< ignored if there is no EOS token
  /// The dummy prefix; ignored by byte-level BPE, which has none.
  std::optional<bool> add_space_prefix = std::nullopt;
  bool parse_special = false;  ///< "</s>" in text is the token, not five characters of text
  /// Spellings of user-defined tokens (SentencePiece: spaces as U+2581) that the text must not be
  /// able to write: they become smaller pieces. Must outlive the call only.
  std::span<const std::string_view> literal = {};
};

}  // namespace llm
