#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace llm {

class MappedFile;

using Sha256Digest = std::array<std::byte, 32>;

/// Incremental SHA-256 (OpenSSL libcrypto).
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(std::span<const std::byte> bytes);
  /// Digest of all bytes so far. More bytes may follow.
  Sha256Digest digest() const;
  /// The same as 64 lower-case hex digits.
  std::string hex() const;

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

/// SHA-256 of `bytes` as 64 lower-case hex digits.
std::string sha256_hex(std::span<const std::byte> bytes);

/// The same of `range`, a part of file.bytes(), in pieces whose pages are given back, so that
/// resident memory stays small.
/// @param progress  called with the bytes done so far; may be empty
std::string sha256_hex(const MappedFile& file, std::span<const std::byte> range,
                       const std::function<void(std::size_t)>& progress = {});
/// The same of what is on disk: the bytes of all parts, one after the other.
std::string file_sha256_hex(const MappedFile& file,
                            const std::function<void(std::size_t)>& progress = {});

}  // namespace llm
