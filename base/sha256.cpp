#include "base/sha256.h"

// The functions below EVP need no memory and no initialization: where an allocation fails while
// EVP loads its providers, OpenSSL 3.0 reads through a null pointer.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include <algorithm>

#include "base/hex.h"
#include "base/mapped_file.h"

namespace llm {

struct Sha256::Context {
  SHA256_CTX state;
};

Sha256::Sha256() : context_(std::make_unique<Context>()) { SHA256_Init(&context_->state); }

Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) {
  SHA256_Update(&context_->state, bytes.data(), bytes.size());
}

Sha256Digest Sha256::digest() const {
  SHA256_CTX copy = context_->state;
  Sha256Digest digest{};
  static_assert(digest.size() == SHA256_DIGEST_LENGTH);
  SHA256_Final(reinterpret_cast<unsigned char*>(digest.data()), &copy);
  return digest;
}

std::string Sha256::hex() const { return hex_text(digest()); }

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

namespace {

void update_in_pieces(Sha256& hash, const MappedFile& file, std::span<const std::byte> range,
                      const std::function<void(std::size_t)>& progress) {
  constexpr std::size_t kPiece = std::size_t{8} << 20;
  for (std::size_t begin = 0; begin < range.size(); begin += kPiece) {
    const auto piece = range.subspan(begin, std::min(kPiece, range.size() - begin));
    hash.update(piece);
    file.drop_pages(piece);
    if (progress) progress(begin + piece.size());
  }
}

}  // namespace

std::string sha256_hex(const MappedFile& file, std::span<const std::byte> range,
                       const std::function<void(std::size_t)>& progress) {
  Sha256 hash;
  update_in_pieces(hash, file, range, progress);
  return hash.hex();
}

std::string file_sha256_hex(const MappedFile& file,
                            const std::function<void(std::size_t)>& progress) {
  Sha256 hash;
  std::size_t before = 0;
  for (const MappedFile::Part& part : file.parts()) {
    update_in_pieces(hash, file, part.bytes, [&](std::size_t done) {
      if (progress) progress(before + done);
    });
    before += part.bytes.size();
  }
  return hash.hex();
}

}  // namespace llm
