#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace llm {

/// The hashes of llama.cpp's gguf-hash: SHA-256 and SHA-1 (OpenSSL), the 64 bits of XXH64 and XXH3
/// with seed 0 (libxxhash). Only SHA-256 tells a file from one that was made to look like it.
enum class HashKind : std::uint8_t { kSha256, kSha1, kXxh64, kXxh3 };
inline constexpr std::array kHashKinds = {HashKind::kSha256, HashKind::kSha1, HashKind::kXxh64,
                                          HashKind::kXxh3};

/// "sha256", "sha1", "xxh64", "xxh3".
std::string_view hash_kind_name(HashKind kind);
std::optional<HashKind> hash_kind_from_name(std::string_view name);
/// Hex digits of a digest.
std::size_t hash_kind_digits(HashKind kind);

/// One hash of a stream of bytes.
class AnyHash {
 public:
  explicit AnyHash(HashKind kind);
  ~AnyHash();
  AnyHash(const AnyHash&) = delete;
  AnyHash& operator=(const AnyHash&) = delete;

  void update(std::span<const std::byte> bytes);
  /// Of all bytes so far, in lower-case hex digits, the highest first.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace llm
