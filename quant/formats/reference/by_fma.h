#pragma once

#include "base/cpu_features.h"

namespace llm::reference {

#ifdef __x86_64__
template <typename Work>
[[gnu::target("fma")]] auto by_fma_instruction(const Work& work) {
  return work();
}
#endif

/// work(), with the same bits: where the CPU has fused multiply-adds, std::fma is an instruction in
/// it instead of a call. @pre its body is [[gnu::always_inline]], and so are the functions with
/// loops that it calls
template <typename Work>
auto by_fma(const Work& work) {
#ifdef __x86_64__
  if (isa_supported(Isa::kAvx2)) return by_fma_instruction(work);
#endif
  return work();
}

/// Stands after the parameters of a lambda for by_fma().
#define LLM_BY_FMA __attribute__((always_inline))

}  // namespace llm::reference
