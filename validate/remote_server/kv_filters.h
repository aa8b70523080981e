#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "engine/state/kv_row.h"

namespace llm {

/// A coarser cache of keys and values than this engine has.
struct KvFilterRow {
  std::string_view name;
  KvFilter filter;
};

/// Blocks of 32 with one scale, as weights of those types, with and without a rotation of heads
/// before (llama.cpp rotates by the orthonormal Walsh-Hadamard matrix: of keys the largest power of
/// two that divides a head, of values 64; here the same, 64).
extern const std::array<KvFilterRow, 6> kKvFilters;

/// Keys and values as bfloat16, rounded to nearest even.
void round_to_bf16(std::span<float> heads, std::size_t head_dim);

}  // namespace llm
