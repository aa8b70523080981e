#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace llm {

/// XXH3's 64 bits with seed 0 (libxxhash) as 16 lower-case hex digits, the highest first. It finds
/// damage at the speed of memory, but not intent: whoever can write bytes can write others of the
/// same hash.
std::string xxh3_hex(std::span<const std::byte> bytes);

}  // namespace llm
