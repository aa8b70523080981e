#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "quant/formats/activations.h"
#include "quant/kernels/kernel_table.h"
#include "tests/fault_injection/fault.h"

// What faults make of activations and of single numbers. Kernels and definition call the same, so
// that a fault of both is the same fault.
namespace llm::faults {

/// Activations of one block, in whatever struct.
struct Codes {
  std::span<std::int8_t> codes;
  float* d;
};

/// Weights of a type's block that share a scale of their own: 32 or 16.
std::size_t sub_block(std::string_view type);
/// Whether a fault of a product is one of its activations, so that spoiling those makes it.
bool is_of_input(const Fault& fault);
/// Spoils one block of a row, the last one or another.
void spoil(const Fault& fault, std::size_t sub, bool is_last, Codes x);
/// Likewise a row of f32; `block` columns are a block.
void spoil(const Fault& fault, std::size_t block, std::span<float> x);
/// Makes a block's sums those of its codes; with `without_last` of all but the last that share a
/// minimum.
void recount(KernelQ8K& x, bool without_last);
void recount(KernelQ8x32& x, bool without_last);
void recount(BlockQ8_K& x, bool without_last);
void recount(BlockQ8_32& x, bool without_last);

/// A quantizer's mistakes in one block of finite numbers.
void quantize_wrongly(const Fault& fault, std::span<const float> x, Codes out);
float largest_magnitude(std::span<const float> x);
/// A function's right result y of x, made wrong.
float function_of(const Fault& fault, float x, float y);
/// What an activation makes of gate and up, y, made wrong.
float activated(const Fault& fault, Activation kind, float gate, float up, float y);
/// A conversion to f16: the right bits y of x, made wrong.
std::uint16_t half_of(const Fault& fault, float x, std::uint16_t y);

}  // namespace llm::faults
