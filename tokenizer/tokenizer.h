#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/encode_options.h"
#include "tokenizer/prefix_matcher.h"
#include "tokenizer/vocab_spec.h"

namespace llm {

class TextModel;

struct DecodeOptions {
  bool render_special = false;  ///< control tokens appear as their spelling, not as nothing
  bool keep_invalid = false;    ///< pass bytes that are no UTF-8 through, not as U+FFFD
  bool continues_text = false;  ///< the ids follow earlier text: a leading space is kept
};

/// A tokenizer over a vocabulary, SentencePiece's BPE or byte-level BPE; callers need not know
/// which. Immutable, so usable from any thread. Move-only. The exact rules are in
/// docs/tokenizer.md.
class Tokenizer {
 public:
  /// The longest text encode() accepts; longer is refused by callers (kResource).
  static constexpr std::size_t kMaxTextBytes = std::size_t{64} << 20;

  /// Errors: those of check_vocab(); kUnsupported where PCRE2 was built without Unicode. Of equal
  /// spellings the first token wins.
  static Result<Tokenizer> create(VocabSpec spec);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Number of tokens; ids are [0, size()).
  std::size_t size() const { return spec_.tokens.size(); }
  const VocabSpec& spec() const { return spec_; }
  bool contains(TokenId id) const { return id >= 0 && static_cast<std::size_t>(id) < size(); }

  /// Text to ids. Any bytes are accepted, also those that are no UTF-8.
  /// Empty text gives BOS and EOS only (where they are added).
  /// @pre text.size() <= kMaxTextBytes
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const;

  /// Ids to text, the inverse of encode(): decode(encode(x)) == x for every valid UTF-8 x, but that
  /// SentencePiece gives U+2581 back as the space it stands for in pieces, and needs it as one.
  /// @pre every id is contained
  std::string decode(std::span<const TokenId> ids, const DecodeOptions& options = {}) const;

  /// The token of that spelling ("</s>", "<0x0A>", "▁the", "Ġthe"), of any kind.
  std::optional<TokenId> find(std::string_view spelling) const;

  /// How the vocabulary spells the token ("▁the", "Ġthe", "<0x0A>"). @pre contains(id)
  const std::string& spelling(TokenId id) const;

  /// The bytes the token adds to a text: spaces for U+2581 ("▁the") or U+0120 ("Ġthe"), the byte of
  /// a byte token, nothing for a control token unless `render_special`, " ⁇ " (U+2047) for the
  /// unknown token. May be a part of a character. @pre contains(id)
  std::string piece_text(TokenId id, bool render_special = false) const;

  TokenKind kind(TokenId id) const { return spec_.tokens[static_cast<std::size_t>(id)].kind; }
  /// Whether a reply ends with this token.
  bool is_end_of_generation(TokenId id) const;

 private:
  Tokenizer(VocabSpec spec, std::unique_ptr<TextModel> model);

  VocabSpec spec_;
  std::unique_ptr<TextModel> model_;  ///< views into spec_.tokens
  PrefixMatcher special_;             ///< control and unknown tokens; views, too
};

}  // namespace llm
