#include "validate/reference/dump/vocab_hash.h"

#include <bit>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/sha256.h"

namespace llm {
namespace {

template <typename T>
void update(Sha256& hash, const T& value) {
  hash.update(std::as_bytes(std::span(&value, 1)));
}

void update_text(Sha256& hash, std::string_view text) {
  update(hash, static_cast<std::uint32_t>(text.size()));
  hash.update(std::as_bytes(std::span(text)));
}

}  // namespace

std::string tokenizer_hash(const VocabSpec& vocab) {
  static_assert(std::endian::native == std::endian::little);
  if (vocab.tokens.empty()) return {};
  Sha256 hash;
  for (const VocabSpec::Token& token : vocab.tokens) {
    update_text(hash, token.text);
    update(hash, token.score);
    update(hash, static_cast<std::int32_t>(token.kind));
  }
  return hash.hex();
}

std::string merges_hash(const VocabSpec& vocab) {
  if (vocab.tokenizer != TokenizerKind::kByteBpe) return {};
  Sha256 hash;
  update_text(hash, vocab.pre_tokenizer);
  const auto text = [&vocab](TokenId id) {
    return vocab.tokens[static_cast<std::size_t>(id)].text;
  };
  for (const VocabSpec::Merge& merge : vocab.merges)
    update_text(hash, text(merge.left) + " " + text(merge.right));
  return hash.hex();
}

}  // namespace llm
