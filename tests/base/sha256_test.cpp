#include "base/sha256.h"

#include "tests/base/bytes.h"
#include "tests/support/test.h"

namespace llm {

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

}  // namespace llm
