#pragma once

#include <cstdint>

/// The codebooks of the types IQ1, IQ2 and IQ3. A block names entries by number; an entry is eight
/// indices of two bits or (IQ3) four of three bits, the first weight's lowest. What an index stands
/// for is a type's kBookValues (codebook_blocks.h).
///
/// The entries are facts of ggml's formats (MIT), read from the `gguf` package by
/// tests/golden/make_codebooks.py.

namespace llm {

extern const std::uint16_t kIq2XxsBook[256];
extern const std::uint16_t kIq2XsBook[512];
extern const std::uint16_t kIq2SBook[1024];
extern const std::uint16_t kIq1Book[2048];
extern const std::uint16_t kIq3XxsBook[256];
extern const std::uint16_t kIq3SBook[512];

}  // namespace llm
