#include "base/ed25519.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <array>

namespace llm {
namespace {

constexpr std::size_t kSignatureBytes = 64;
constexpr std::size_t kBase64Bytes = (kSignatureBytes + 2) / 3 * 4;

using Context = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

/// OpenSSL would ask on the terminal.
int no_password(char*, int, int, void*) { return -1; }

/// The key that `read` finds in a PEM text.
template <typename Read>
Result<std::shared_ptr<EVP_PKEY>> parse_key(std::string_view pem, Read read, const char* rule) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> text(
      BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free);
  std::shared_ptr<EVP_PKEY> key(
      text == nullptr ? nullptr : read(text.get(), nullptr, no_password, nullptr), EVP_PKEY_free);
  ERR_clear_error();
  if (key != nullptr && EVP_PKEY_id(key.get()) == EVP_PKEY_ED25519) return key;
  return Error{.code = ErrorCode::kMalformed,
               .field = "key",
               .message = std::string("found ") +
                          (key == nullptr ? "none" : "a key of a different kind") + rule};
}

}  // namespace

Result<SigningKey> SigningKey::parse(std::string_view pem) {
  SigningKey key;
  LLM_TRY(key.key_, parse_key(pem, PEM_read_bio_PrivateKey,
                              ", need what `openssl genpkey -algorithm ed25519` writes"));
  return key;
}

Result<std::string> SigningKey::sign(std::string_view message) const {
  const Context context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  std::array<unsigned char, kSignatureBytes> signature;
  std::size_t size = signature.size();
  if (context == nullptr ||
      EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key_.get()) != 1 ||
      EVP_DigestSign(context.get(), signature.data(), &size, bytes_of(message), message.size()) !=
          1) {
    ERR_clear_error();
    return Error{ErrorCode::kResource, "signature", "found none from OpenSSL, need memory for it"};
  }
  std::array<unsigned char, kBase64Bytes + 1> text;
  EVP_EncodeBlock(text.data(), signature.data(), static_cast<int>(size));
  return std::string(reinterpret_cast<const char*>(text.data()), kBase64Bytes);
}

Result<PublicKey> PublicKey::parse(std::string_view pem) {
  PublicKey key;
  LLM_TRY(key.key_, parse_key(pem, PEM_read_bio_PUBKEY,
                              ", need what `openssl pkey -pubout` writes of an Ed25519 key"));
  return key;
}

bool PublicKey::verify(std::string_view message, std::string_view signature) const {
  std::array<unsigned char, kBase64Bytes / 4 * 3> decoded;
  const Context context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  const bool valid =
      signature.size() == kBase64Bytes && context != nullptr &&
      EVP_DecodeBlock(decoded.data(), bytes_of(signature), kBase64Bytes) > 0 &&
      EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key_.get()) == 1 &&
      EVP_DigestVerify(context.get(), decoded.data(), kSignatureBytes, bytes_of(message),
                       message.size()) == 1;
  ERR_clear_error();
  return valid;
}

}  // namespace llm
