#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

struct evp_pkey_st;

namespace llm {

// Signatures by Ed25519 (RFC 8032; OpenSSL libcrypto), as base64. Usable from any thread.

class SigningKey {
 public:
  /// @param pem  as `openssl genpkey -algorithm ed25519` writes it. Errors: kMalformed for anything
  /// else, one under a password included.
  static Result<SigningKey> parse(std::string_view pem);
  /// Errors: kResource where OpenSSL has no memory.
  Result<std::string> sign(std::string_view message) const;

 private:
  std::shared_ptr<evp_pkey_st> key_;
};

class PublicKey {
 public:
  /// @param pem  as `openssl pkey -pubout` writes it. Errors: kMalformed for anything else.
  static Result<PublicKey> parse(std::string_view pem);
  bool verify(std::string_view message, std::string_view signature) const;

 private:
  std::shared_ptr<evp_pkey_st> key_;
};

}  // namespace llm
