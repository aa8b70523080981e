#include "base/xxh3.h"

#define XXH_INLINE_ALL
#include <fmt/core.h>
#include <xxhash.h>

namespace llm {

std::string xxh3_hex(std::span<const std::byte> bytes) {
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

}  // namespace llm
