#ifndef LLM_TOKENIZER_TOKENIZER_H_
#define LLM_TOKENIZER_TOKENIZER_H_

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/sentencepiece/piece_table.h"
#include "tokenizer/vocab_spec.h"

namespace llm {

/// What encode() adds and recognises. An unset option is as the vocabulary says.
struct EncodeOptions {
  std::optional<bool> add_bos = std::nullopt;           ///< ignored if there is no BOS token
  std::optional<bool> add_eos = std::nullopt;           ///< ignored if there is no EOS token
  std::optional<bool> add_space_prefix = std::nullopt;  ///< the dummy prefix
  bool parse_special = false;  ///< "</s>" in text is the token, not five characters of text
  /// Spellings of user-defined tokens (spaces as U+2581) that the text must not be able to write:
  /// they become smaller pieces. Must outlive the call only.
  std::span<const std::string_view> literal = {};
};

struct DecodeOptions {
  bool render_special = false;  ///< control tokens appear as their spelling, not as nothing
  bool keep_invalid = false;    ///< pass bytes that are no UTF-8 through, not as U+FFFD
  bool continues_text = false;  ///< the ids follow earlier text: a leading space is kept
};

/// A SentencePiece BPE tokenizer over a vocabulary. Immutable, so usable from any thread.
/// Move-only. The exact rules are in docs/tokenizer.md.
class Tokenizer {
 public:
  /// The longest text encode() accepts; longer is refused by callers (kResource).
  static constexpr std::size_t kMaxTextBytes = std::size_t{64} << 20;

  /// Errors: those of check_vocab(). Of equal spellings the first token wins.
  static Result<Tokenizer> create(VocabSpec spec);

  Tokenizer(Tokenizer&&) = default;
  Tokenizer& operator=(Tokenizer&&) = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// Number of tokens; ids are [0, size()).
  std::size_t size() const { return spec_.tokens.size(); }
  const VocabSpec& spec() const { return spec_; }
  bool contains(TokenId id) const { return id >= 0 && static_cast<std::size_t>(id) < size(); }

  /// Text to ids. Any bytes are accepted: those that are not UTF-8 become byte tokens one by one.
  /// Empty text gives BOS and EOS only (where they are added).
  /// @pre text.size() <= kMaxTextBytes
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const;

  /// Ids to text, the inverse of encode(): decode(encode(x)) == x for every valid UTF-8 x without
  /// U+2581, which stands for the space in pieces and comes back as one.
  /// @pre every id is contained
  std::string decode(std::span<const TokenId> ids, const DecodeOptions& options = {}) const;

  /// The token of that spelling ("</s>", "<0x0A>", "▁the"), of any kind.
  std::optional<TokenId> find(std::string_view spelling) const { return table_.any(spelling); }

  /// How the vocabulary spells the token ("▁the", "<0x0A>"). @pre contains(id)
  const std::string& spelling(TokenId id) const;

  /// The bytes the token adds to a text: spaces for U+2581, the byte of a byte token, nothing for a
  /// control token unless `render_special`, " ⁇ " (U+2047) for the unknown token. May be a part of
  /// a character. @pre contains(id)
  std::string piece_text(TokenId id, bool render_special = false) const;

  TokenKind kind(TokenId id) const { return spec_.tokens[static_cast<std::size_t>(id)].kind; }
  /// Whether a reply ends with this token.
  bool is_end_of_generation(TokenId id) const;

 private:
  explicit Tokenizer(VocabSpec spec);
  void append_text(std::string_view text, const EncodeOptions& options,
                   std::vector<TokenId>& ids) const;
  void append_parsed(std::string_view text, const EncodeOptions& options,
                     std::vector<TokenId>& ids) const;

  VocabSpec spec_;
  PieceTable table_;  ///< views into spec_.tokens
};

}  // namespace llm

#endif  // LLM_TOKENIZER_TOKENIZER_H_
