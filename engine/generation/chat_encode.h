#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/chat/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace llm {

/// The spellings that become special tokens in markup, and stay text in contents.
///
/// All control tokens are; of user-defined ones those that the template's text spells, those of the
/// form <|...|>, and what other models' templates write ("[INST]", "<think>"). Others (runs of
/// blanks, tags of HTML) are words of the text, for users too.
class ChatMarkers {
 public:
  struct Marker {
    std::string_view spelling;
    TokenId id;
  };

  /// @param tokenizer  outlives the markers
  ChatMarkers(const Tokenizer& tokenizer, std::string_view jinja);

  /// The longest marker that `text` starts with.
  std::optional<Marker> at_start(std::string_view text) const;
  /// The user-defined ones, which the tokenizer has to take as text.
  std::span<const std::string_view> literal() const { return literal_; }

 private:
  std::vector<Marker> markers_;  ///< by first byte, then the longest first
  std::vector<std::string_view> literal_;
};

/// Ids of the parts. Text between two special tokens is encoded as one, so that tokens meet as they
/// did in training; the vocabulary's dummy prefix follows each special token.
/// @param is_start  the conversation starts here: BOS if the vocabulary wants it, and once where
///                  the template writes it as well
/// @param message_ends  not null: gets the positions at which messages end, as far as a special
/// token follows their contents
/// Errors: kResource with both numbers for text above Tokenizer::kMaxTextBytes between two special
/// tokens.
Result<std::vector<TokenId>> encode_chat(const Tokenizer& tokenizer, const ChatMarkers& markers,
                                         std::span<const ChatPart> parts, bool is_start,
                                         std::vector<std::size_t>* message_ends = nullptr);

}  // namespace llm
