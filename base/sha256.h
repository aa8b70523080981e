#ifndef LLM_BASE_SHA256_H_
#define LLM_BASE_SHA256_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace llm {

/// Incremental SHA-256 (OpenSSL libcrypto).
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(std::span<const std::byte> bytes);
  /// Digest of all bytes so far as 64 lower-case hex digits. More bytes may follow.
  std::string hex() const;

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

/// SHA-256 of `bytes` as 64 lower-case hex digits.
std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace llm

#endif  // LLM_BASE_SHA256_H_
