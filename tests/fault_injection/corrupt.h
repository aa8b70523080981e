#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "quant/formats/activations.h"
#include "quant/formats/block_traits.h"
#include "quant/kernels/kernel_table.h"
#include "tests/fault_injection/fault.h"

// What faults make of activations and of single numbers. Kernels and definition call the same, so
// that a fault of both is the same fault.
namespace llm::faults {

using Floats = std::span<const float>;

/// Activations of one block, in whatever struct.
struct Codes {
  std::span<std::int8_t> codes;
  float* d;
};

/// Whether a fault of a product is one of its activations, so that spoiling those makes it.
bool is_of_input(const Fault& fault);
/// Spoils one block of a row of activations for weights of `type`, the last one or another.
void spoil(const Fault& fault, std::string_view type, bool is_last, Codes x);
/// Likewise a row of f32; `block` columns are a block.
void spoil(const Fault& fault, std::size_t block, std::span<float> x);
/// Makes a block's sums those of its codes; with `without_last` of all but the last that share a
/// minimum.
void recount(KernelQ8K& x, bool without_last);
void recount(KernelQ8x32& x, bool without_last);
void recount(BlockQ8_K& x, bool without_last);
void recount(BlockQ8_32& x, bool without_last);

/// Spoils `n_rows` rows of activations: f32, or blocks, one row after the other or interleaved.
template <typename Block256, typename Block32>
void spoil_activations(const Fault& fault, WeightType type, bool is_float, bool is_interleaved,
                       std::size_t n_rows, std::span<std::byte> x) {
  const BlockTraits& traits = block_traits(type);
  const auto each = [&]<typename Block>(Block* blocks) {
    const std::size_t n = x.size() / sizeof(Block);
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t place = is_interleaved ? i / n_rows : i % (n / n_rows);
      spoil(fault, traits.name, place + 1 == n / n_rows, {blocks[i].qs, &blocks[i].d});
      recount(blocks[i], fault.is("min"));
    }
  };
  const std::size_t row = x.size() / sizeof(float) / n_rows;
  const std::size_t block = traits.block_weights == 1 ? 32 : traits.block_weights;
  for (std::size_t r = 0; is_float && r < n_rows; ++r)
    spoil(fault, block, {reinterpret_cast<float*>(x.data()) + r * row, row});
  if (is_float) return;
  if (block == 256) return each(reinterpret_cast<Block256*>(x.data()));
  each(reinterpret_cast<Block32*>(x.data()));
}

float largest_magnitude(Floats x);
/// A quantizer's mistakes in one block of finite numbers.
void quantize_wrongly(const Fault& fault, Floats x, Codes out);
template <typename Block>
void quantize_wrongly(const Fault& fault, Floats x, Block& out) {
  const Block before = out;
  quantize_wrongly(fault, x, {out.qs, &out.d});
  recount(out, fault.is("sum"));
  if (std::memcmp(&before, &out, sizeof(out)) != 0) note_struck();
}

/// Makes right results y wrong where the fault holds: of exp, of a conversion to f16, of an
/// activation of gates x and ups.
void spoil_exp(const Fault& fault, float x, std::size_t i, std::size_t n, float& y);
void spoil_halves(const Fault& fault, Floats x, std::uint16_t* y);
void spoil_activation(const Fault& fault, Activation kind, Floats x, const float* up, float* y);
/// Of RoPE: elements [begin, begin + before.size()) of x, which were `before`.
void spoil_rope(const Fault& fault, Floats before, std::size_t begin, std::size_t head_dim,
                Floats cos, Floats sin, float* x);

}  // namespace llm::faults
