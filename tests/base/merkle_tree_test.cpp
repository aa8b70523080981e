#include "base/merkle_tree.h"

#include "base/hex.h"
#include "tests/support/test.h"

namespace llm::test {
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
