#pragma once

#include <string>

#include "tokenizer/tokenizer.h"

namespace llm {

/// Turns ids into text one at a time, as they are generated. The texts of all push() and of the
/// last flush() joined are Tokenizer::decode() of the ids.
///
/// Where the vocabulary has a dummy prefix, one space at the very start of the text is removed
/// (unless DecodeOptions::continues_text). The tokenizer must outlive the decoder and stay in
/// place.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options = {});

  /// The text that `id` completes: whole characters only, possibly none. Bytes that can no longer
  /// become a character are given out at once, each as U+FFFD (or itself with keep_invalid).
  /// @pre tokenizer.contains(id)
  std::string push(TokenId id);

  /// Ends the text: a character still incomplete (at most 3 bytes) is given out as invalid bytes.
  /// The next push() continues the same text.
  std::string flush();

 private:
  std::string take(std::size_t size);

  const Tokenizer* tokenizer_;
  DecodeOptions options_;
  bool strip_space_;     ///< nothing but control tokens seen, and a prefix is due
  std::string pending_;  ///< the bytes of an incomplete character
};

}  // namespace llm
