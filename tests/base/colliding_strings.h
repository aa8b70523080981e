#pragma once

#include "tests/support/test.h"

namespace llm::test {

/// `n` different strings of 16 bytes with the same std::hash of libstdc++: MurmurHash64A with a
/// fixed seed (A. Appleby, public domain). What a block of 8 bytes does to the state can be undone,
/// so any first block has a second one that leads to the same state.
inline std::vector<std::string> colliding_strings(std::size_t n) {
  constexpr std::uint64_t kMultiplier = 0xc6a4a7935bd1e995U;
  constexpr std::uint64_t kSeed = 0xc70f6907U;
  std::uint64_t inverse = 1;  // by Newton's steps, each of which doubles the right bits
  for (int i = 0; i < 6; ++i) inverse *= 2 - kMultiplier * inverse;
  const auto mix = [&](std::uint64_t k) {
    k *= kMultiplier;
    k ^= k >> 47;
    return k * kMultiplier;
  };
  const auto unmix = [&](std::uint64_t k) {
    k *= inverse;
    k ^= k >> 47;
    return k * inverse;
  };
  const std::uint64_t begin = kSeed ^ 16 * kMultiplier;
  std::vector<std::string> out;
  for (std::uint64_t first = 0; first < n; ++first) {
    const std::uint64_t state = (begin ^ mix(first)) * kMultiplier;
    const std::uint64_t blocks[] = {first, unmix(state)};  // state becomes 0
    std::string text(16, '\0');
    std::memcpy(text.data(), blocks, 16);
    out.push_back(std::move(text));
  }
  return out;
}

}  // namespace llm::test
