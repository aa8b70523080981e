#pragma once

// The body of an ISA unit: kernels_<isa>.cpp includes this, built with that instruction set's
// flags, and exports one table. Everything else stays in anonymous namespaces, so that no code of
// one instruction set can be linked into another's path (scripts/check_isa_leaks.py looks at the
// objects).

#include "quant/kernels/attention_kernel.h"
#include "quant/kernels/delta_net_ops.h"
#include "quant/kernels/matmul_float_kernel.h"

namespace {

template <class A>
constexpr llm::KernelTable make_table() {
  return {
      .isa = A::kIsa,
      .matmul = matmul<A>,
      .quantize_q8k = quantize_q8k<A>,
      .quantize_q8x32 = quantize_q8x32<A>,
      .rms_norm = rms_norm<A>,
      .rope = rope<A>,
      .activate = activate<A>,
      .soft_cap = soft_cap<A>,
      .axpy = axpy<A>,
      .to_half = row_to_half<A>,
      .exp_distances = exp_distances<A>,
      .convolve = convolve<A>,
      .unit_length = unit_length<A>,
      .delta_rule = delta_rule<A>,
      .attend = attend<A>,
      .merge = merge<A>,
      .finish = finish<A>,
  };
}

}  // namespace
