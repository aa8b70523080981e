#include "engine/gguf/hash_kind.h"

// Below EVP for the reason that base/sha256.cpp gives.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <variant>

#include "base/hex.h"
#include "base/sha256.h"

namespace llm {
namespace {

struct KindFacts {
  std::string_view name;
  std::size_t digits;
};
constexpr std::array<KindFacts, kHashKinds.size()> kFacts = {
    {{"sha256", 64}, {"sha1", 40}, {"xxh64", 16}, {"xxh3", 16}}};

const KindFacts& facts(HashKind kind) { return kFacts[static_cast<std::size_t>(kind)]; }

struct Sha1 {
  SHA_CTX state;
  Sha1() { SHA1_Init(&state); }
  void update(std::span<const std::byte> bytes) { SHA1_Update(&state, bytes.data(), bytes.size()); }
  std::string hex() const {
    SHA_CTX copy = state;
    std::array<std::byte, SHA_DIGEST_LENGTH> digest{};
    SHA1_Final(reinterpret_cast<unsigned char*>(digest.data()), &copy);
    return hex_text(digest);
  }
};

/// XXH's canonical form: the number with its highest byte first.
std::string hex_of(XXH64_hash_t number) {
  XXH64_canonical_t canonical;
  XXH64_canonicalFromHash(&canonical, number);
  return hex_text(std::as_bytes(std::span(canonical.digest)));
}

struct Xxh64 {
  XXH64_state_t state;
  Xxh64() { XXH64_reset(&state, 0); }
  void update(std::span<const std::byte> bytes) {
    XXH64_update(&state, bytes.data(), bytes.size());
  }
  std::string hex() const { return hex_of(XXH64_digest(&state)); }
};

struct Xxh3 {
  XXH3_state_t state;
  Xxh3() {
    XXH3_INITSTATE(&state);
    XXH3_64bits_reset(&state);
  }
  void update(std::span<const std::byte> bytes) {
    XXH3_64bits_update(&state, bytes.data(), bytes.size());
  }
  std::string hex() const { return hex_of(XXH3_64bits_digest(&state)); }
};

}  // namespace

struct AnyHash::State {
  std::variant<Sha256, Sha1, Xxh64, Xxh3> hash;
};

AnyHash::AnyHash(HashKind kind) : state_(std::make_unique<State>()) {
  if (kind == HashKind::kSha1) state_->hash.emplace<Sha1>();
  if (kind == HashKind::kXxh64) state_->hash.emplace<Xxh64>();
  if (kind == HashKind::kXxh3) state_->hash.emplace<Xxh3>();
}

AnyHash::~AnyHash() = default;

void AnyHash::update(std::span<const std::byte> bytes) {
  std::visit([&](auto& hash) { hash.update(bytes); }, state_->hash);
}

std::string AnyHash::hex() const {
  return std::visit([](const auto& hash) { return hash.hex(); }, state_->hash);
}

std::string_view hash_kind_name(HashKind kind) { return facts(kind).name; }
std::size_t hash_kind_digits(HashKind kind) { return facts(kind).digits; }

std::optional<HashKind> hash_kind_from_name(std::string_view name) {
  const auto known = std::ranges::find(kHashKinds, name, hash_kind_name);
  return known == kHashKinds.end() ? std::nullopt : std::optional(*known);
}

}  // namespace llm
