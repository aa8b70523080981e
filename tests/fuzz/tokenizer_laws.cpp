#include "tests/fuzz/tokenizer_laws.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "tests/fuzz/fuzz.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/vocab_check.h"

namespace llm::fuzz {
namespace {

constexpr std::string_view kSpace = "\u2581";

/// U+2581 comes back as the space it stands for.
std::string with_spaces(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const bool is_space = text.starts_with(kSpace);
    out += is_space ? ' ' : text[0];
    text.remove_prefix(is_space ? kSpace.size() : 1);
  }
  return out;
}

/// Whether every byte has a token and SentencePiece's space is a piece, as the law of the round
/// trip asks.
bool spells_all_bytes(const Tokenizer& tokenizer) {
  if (tokenizer.spec().tokenizer == TokenizerKind::kSentencePiece) {
    const auto space = tokenizer.find(kSpace);
    return has_byte_tokens(tokenizer.spec()) && space &&
           tokenizer.kind(*space) == TokenKind::kNormal;
  }
  bool spelled[256] = {};
  for (TokenId id = 0; tokenizer.contains(id); ++id) {
    if (tokenizer.kind(id) != TokenKind::kNormal || tokenizer.find(tokenizer.spelling(id)) != id)
      continue;
    const std::string bytes = tokenizer.piece_text(id);
    if (bytes.size() == 1) spelled[static_cast<unsigned char>(bytes[0])] = true;
  }
  return std::ranges::all_of(spelled, [](bool is) { return is; });
}

void check_stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  for (const bool render_special : {false, true}) {
    for (const bool keep_invalid : {false, true}) {
      for (const bool continues_text : {false, true}) {
        const DecodeOptions options{render_special, keep_invalid, continues_text};
        StreamDecoder decoder(tokenizer, options);
        std::string streamed;
        for (const TokenId id : ids) streamed += decoder.push(id);
        streamed += decoder.flush();
        require(streamed == tokenizer.decode(ids, options), "streamed text is the whole text",
                streamed);
        require(keep_invalid || is_valid_utf8(streamed), "decoded text is UTF-8", streamed);
      }
    }
  }
}

}  // namespace

void check_tokenizer(const Tokenizer& tokenizer, std::string_view text, std::string_view bytes) {
  const bool comes_back = spells_all_bytes(tokenizer);
  const bool is_pieces = tokenizer.spec().tokenizer == TokenizerKind::kSentencePiece;
  for (const bool parse_special : {false, true}) {
    const std::vector<TokenId> ids = tokenizer.encode(text, {.parse_special = parse_special});
    for (const TokenId id : ids) require(tokenizer.contains(id), "encoded ids are tokens");
    check_stream(tokenizer, ids);
    if (parse_special || !comes_back) continue;
    // A file may name a token as BOS that is text.
    const auto plain = tokenizer.encode(text, {.add_bos = false, .add_eos = false});
    const std::string decoded = tokenizer.decode(plain, {.keep_invalid = true});
    const std::string expected = is_pieces ? with_spaces(text) : std::string(text);
    require((is_pieces ? with_spaces(decoded) : decoded) == expected, "decode(encode(x)) == x",
            decoded);
  }
  std::vector<TokenId> ids;
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
    const auto number =
        static_cast<unsigned char>(bytes[i]) * 256U + static_cast<unsigned char>(bytes[i + 1]);
    ids.push_back(static_cast<TokenId>(number % tokenizer.size()));
  }
  check_stream(tokenizer, ids);
}

}  // namespace llm::fuzz
