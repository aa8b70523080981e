// Hashes, and the hex digits that they are written in.

#include <unordered_set>

#include "base/hex.h"
#include "base/seeded_hash.h"
#include "base/sha256.h"
#include "base/xxh3.h"
#include "tests/base/bytes.h"
#include "tests/base/colliding_strings.h"
#include "tests/support/test.h"

namespace llm {
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

}  // namespace llm
