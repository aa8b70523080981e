#pragma once

#include <span>
#include <string>

#include "engine/gguf/gguf_split.h"

namespace llm {

/// What has become of tensor `x` of file a where b has `y` of that name with other bytes:
/// "exchanged with NAME", "the bytes of NAME", "the same rows in another order", "transposed",
/// "N times the first"; empty where it is none of these.
/// @param others  of a, those that differ. Cost: reads both tensors, and the beginnings of others
std::string likeness(const OpenGguf& a, const GgufTensor& x, const OpenGguf& b, const GgufTensor& y,
                     std::span<const GgufTensor* const> others);

}  // namespace llm
