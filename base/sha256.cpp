#include "base/sha256.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/mapped_file.h"

namespace llm {

struct Sha256::Context {
  EVP_MD_CTX* md = EVP_MD_CTX_new();
  Context() { LLM_CHECK(md != nullptr); }
  ~Context() { EVP_MD_CTX_free(md); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  LLM_CHECK(EVP_DigestInit_ex(context_->md, EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) {
  LLM_CHECK(EVP_DigestUpdate(context_->md, bytes.data(), bytes.size()) == 1);
}

std::string Sha256::hex() const {
  const Context copy;
  std::array<unsigned char, 32> digest{};
  LLM_CHECK(EVP_MD_CTX_copy_ex(copy.md, context_->md) == 1);
  LLM_CHECK(EVP_DigestFinal_ex(copy.md, digest.data(), nullptr) == 1);
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

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
