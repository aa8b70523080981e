#include "base/seeded_hash.h"

#include <sys/random.h>

#include <chrono>

namespace llm {

std::array<std::uint64_t, 2> hash_key() {
  static const auto key = [] {
    std::array<std::uint64_t, 2> random{};
    if (::getrandom(random.data(), sizeof random, GRND_NONBLOCK) != sizeof random) {
      // Early after boot: the clock, and where the loader put this process.
      random[0] =
          static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
      random[1] = reinterpret_cast<std::uintptr_t>(&random);
    }
    return random;
  }();
  return key;
}

}  // namespace llm
