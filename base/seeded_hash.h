#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace llm {

/// SipHash with C rounds a word and D at the end (Aumasson, Bernstein: "SipHash: a fast short-input
/// PRF", 2012): who does not know the key cannot make strings whose hashes collide.
template <int C, int D>
std::uint64_t sip_hash(std::array<std::uint64_t, 2> key, std::string_view text) {
  std::uint64_t v0 = key[0] ^ 0x736f6d6570736575U;
  std::uint64_t v1 = key[1] ^ 0x646f72616e646f6dU;
  std::uint64_t v2 = key[0] ^ 0x6c7967656e657261U;
  std::uint64_t v3 = key[1] ^ 0x7465646279746573U;
  const auto rounds = [&](int n) {
    for (int i = 0; i < n; ++i) {
      v0 += v1;
      v2 += v3;
      v1 = std::rotl(v1, 13) ^ v0;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 = std::rotl(v0, 32) + v3;
      v2 += v1;
      v3 = std::rotl(v3, 21) ^ v0;
      v1 = std::rotl(v1, 17) ^ v2;
      v2 = std::rotl(v2, 32);
    }
  };
  const auto absorb = [&](std::uint64_t word) {
    v3 ^= word;
    rounds(C);
    v0 ^= word;
  };
  std::size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    std::uint64_t word;
    std::memcpy(&word, text.data() + at, 8);
    absorb(word);
  }
  std::uint64_t last = std::uint64_t{text.size()} << 56;
  for (int shift = 0; at < text.size(); ++at, shift += 8)
    last |= std::uint64_t{static_cast<unsigned char>(text[at])} << shift;
  absorb(last);
  v2 ^= 0xFF;
  rounds(D);
  return v0 ^ v1 ^ v2 ^ v3;
}

/// The key of this process, random. No result may depend on it, so neither on the order of an
/// unordered container.
std::array<std::uint64_t, 2> hash_key();

/// The hash for unordered containers whose keys come from files: a file made to collide under
/// std::hash, which has one fixed seed, would make every look-up read the whole table.
struct SeededHash {
  std::size_t operator()(std::string_view text) const { return sip_hash<1, 3>(key, text); }
  std::array<std::uint64_t, 2> key = hash_key();
};

}  // namespace llm
