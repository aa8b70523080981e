#include "validate/dump/vocab_hash.h"

#include <bit>
#include <cstdint>
#include <span>

#include "base/sha256.h"

namespace llm {

std::string tokenizer_hash(const VocabSpec& vocab) {
  static_assert(std::endian::native == std::endian::little);
  if (vocab.tokens.empty()) return {};
  Sha256 hash;
  const auto update = [&](const auto& value) { hash.update(std::as_bytes(std::span(&value, 1))); };
  for (const VocabSpec::Token& token : vocab.tokens) {
    update(static_cast<std::uint32_t>(token.text.size()));
    hash.update(std::as_bytes(std::span(token.text)));
    update(token.score);
    update(static_cast<std::int32_t>(token.kind));
  }
  return hash.hex();
}

}  // namespace llm
