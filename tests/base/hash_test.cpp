// Hashes, and the hex digits that they are written in.

#include <unordered_set>

#include "base/hex.h"
#include "base/merkle_tree.h"
#include "base/seeded_hash.h"
#include "base/sha256.h"
#include "base/xxh3.h"
#include "tests/base/bytes.h"
#include "tests/base/colliding_strings.h"

namespace llm::test {
namespace {

template <typename Hash>
std::size_t largest_bucket(const std::vector<std::string>& strings) {
  const std::unordered_set<std::string_view, Hash> set(strings.begin(), strings.end());
  REQUIRE(set.size() == strings.size());
  std::size_t largest = 0;
  for (std::size_t b = 0; b < set.bucket_count(); ++b)
    largest = std::max(largest, set.bucket_size(b));
  return largest;
}

}  // namespace

// Vectors: NIST FIPS 180-4 examples and CAVP's empty message.
TEST_CASE("known messages have their digests", "[base][sha256]") {
  CHECK(sha256_hex({}) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256_hex(bytes_of("abc")) ==
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256_hex(bytes_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")) ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sha256_hex(bytes_of(std::string(1000000, 'a'))) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("the cuts between updates do not matter", "[base][sha256]") {
  std::string message;
  for (int i = 0; i < 200; ++i) message += static_cast<char>(i);
  const std::string expected = sha256_hex(bytes_of(message));
  for (std::size_t cut = 0; cut <= message.size(); ++cut) {
    Sha256 hash;
    hash.update(bytes_of(message.substr(0, cut)));
    hash.update({});
    hash.update(bytes_of(message.substr(cut)));
    REQUIRE(hash.hex() == expected);
  }
}

TEST_CASE("a digest may be taken on the way", "[base][sha256]") {
  Sha256 hash;
  hash.update(bytes_of("ab"));
  CHECK(hash.hex() == sha256_hex(bytes_of("ab")));
  CHECK(hash.hex() == hash.hex());
  hash.update(bytes_of("c"));
  Sha256 moved = std::move(hash);
  CHECK(moved.hex() == sha256_hex(bytes_of("abc")));
}

// The values of xxhsum 0.8.
TEST_CASE("XXH3 gives the values of its library's tool", "[base][hash]") {
  CHECK(xxh3_hex({}) == "2d06800538d394c2");
  CHECK(xxh3_hex(bytes_of("abc")) == "78af5f94892f3950");
}

TEST_CASE("SipHash-2-4 gives the values of its paper", "[base][hash]") {
  // Key 00 01 ... 0f, messages 00 01 ... (appendix A, and the authors' vectors.h).
  const std::array<std::uint64_t, 2> key = {0x0706050403020100U, 0x0f0e0d0c0b0a0908U};
  std::string message;
  CHECK(sip_hash<2, 4>(key, message) == 0x726fdb47dd0e0e31U);
  for (char c = 0; c < 15; ++c) message += c;
  CHECK(sip_hash<2, 4>(key, message) == 0xa129ca6149be45e5U);
}

TEST_CASE("strings that collide under std::hash are spread over the table", "[base][hash]") {
  CHECK(largest_bucket<std::hash<std::string_view>>(test::colliding_strings(300)) == 300);
  CHECK(largest_bucket<SeededHash>(test::colliding_strings(60'000)) < 16);
}

TEST_CASE("two hex digits are a byte", "[base][hex]") {
  CHECK(hex_byte("00") == 0x00);
  CHECK(hex_byte("0A") == 0x0A);
  CHECK(hex_byte("fF") == 0xFF);
}

TEST_CASE("any other text is no byte", "[base][hex]") {
  const std::string_view text = GENERATE(
      values<std::string_view>({"", "0", "0A0", "0G", "G0", "-1", "+1", " 1", "1 ", "0x"}));
  CAPTURE(text);
  CHECK_FALSE(hex_byte(text).has_value());
}

namespace {

Sha256Digest leaf(std::size_t i) {
  Sha256Digest digest{};
  digest[0] = static_cast<std::byte>(i);
  return digest;
}

std::vector<Sha256Digest> leaves_of(std::span<const std::size_t> which) {
  std::vector<Sha256Digest> leaves;
  for (const std::size_t i : which) leaves.push_back(leaf(i));
  return leaves;
}

}  // namespace

TEST_CASE("a tree has the shape of RFC 6962", "[base][merkle]") {
  const auto node = [](const Sha256Digest& a, const Sha256Digest& b) {
    std::string text = "\1";
    for (const auto& digest : {a, b})
      text.append(reinterpret_cast<const char*>(digest.data()), digest.size());
    return sha256_hex(std::as_bytes(std::span(text)));
  };
  const auto pair = [&](std::size_t i) { return merkle_root({leaf(i), leaf(i + 1)}); };
  CHECK(merkle_root({leaf(9)}) == leaf(9));
  CHECK(hex_text(pair(0)) == node(leaf(0), leaf(1)));
  CHECK(hex_text(merkle_root({leaf(0), leaf(1), leaf(2)})) == node(pair(0), leaf(2)));
  CHECK(hex_text(merkle_root({leaf(0), leaf(1), leaf(2), leaf(3), leaf(4)})) ==
        node(merkle_root({leaf(0), leaf(1), leaf(2), leaf(3)}), leaf(4)));
}

TEST_CASE("any leaves and what they lack give the root", "[base][merkle]") {
  for (std::size_t n = 1; n <= 9; ++n) {
    std::vector<std::size_t> all(n);
    std::iota(all.begin(), all.end(), std::size_t{0});
    const auto leaves = leaves_of(all);
    for (std::size_t set = 1; set < std::size_t{1} << n; ++set) {
      CAPTURE(n, set);
      std::vector<std::size_t> known;
      for (std::size_t i = 0; i < n; ++i)
        if ((set >> i & 1U) != 0) known.push_back(i);
      auto proof = merkle_proof(leaves, known);
      REQUIRE(proof.size() == merkle_proof_size(n, known));
      auto shown = leaves_of(known);
      REQUIRE(merkle_root_by_proof(n, known, shown, proof) == merkle_root(leaves));
      shown[set % shown.size()][31] ^= std::byte{1};
      REQUIRE(merkle_root_by_proof(n, known, shown, proof) != merkle_root(leaves));
      if (proof.empty()) continue;
      proof[set % proof.size()][31] ^= std::byte{1};
      REQUIRE(merkle_root_by_proof(n, known, leaves_of(known), proof) != merkle_root(leaves));
    }
  }
}

}  // namespace llm::test
