// Batches by the tiles of AMX. All else is what AVX-512 VNNI does, in its own unit.

#include "quant/kernels/tile_kernel.h"

namespace llm {
extern const KernelTable kKernelsAvx512Vnni;
}

namespace {

/// An entry of the table of AVX-512 VNNI, called through it: its value is not a constant here.
template <auto kEntry>
struct Inherited;
template <class... Args, void (*llm::KernelTable::*kEntry)(Args...)>
struct Inherited<kEntry> {
  static void call(Args... args) { (llm::kKernelsAvx512Vnni.*kEntry)(args...); }
};
template <auto kEntry>
constexpr auto inherited = &Inherited<kEntry>::call;

/// @pre has_tiles(args)
template <>
void matmul<AmxOps>(const llm::MatmulArgs& args) {
  matmul_by_tiles<AmxOps>(args);
}

void matmul_by_tiles_or_not(const llm::MatmulArgs& args) {
  if (has_tiles(args)) return matmul<AmxOps>(args);
  llm::kKernelsAvx512Vnni.matmul(args);
}

}  // namespace

namespace llm {
extern const KernelTable kKernelsAmx;
const KernelTable kKernelsAmx = {
    .isa = Isa::kAmx,
    .matmul = matmul_by_tiles_or_not,
    .quantize_q8k = inherited<&KernelTable::quantize_q8k>,
    .quantize_q8x32 = inherited<&KernelTable::quantize_q8x32>,
    .rms_norm = inherited<&KernelTable::rms_norm>,
    .rope = inherited<&KernelTable::rope>,
    .activate = inherited<&KernelTable::activate>,
    .soft_cap = inherited<&KernelTable::soft_cap>,
    .axpy = inherited<&KernelTable::axpy>,
    .to_half = inherited<&KernelTable::to_half>,
    .exp_distances = inherited<&KernelTable::exp_distances>,
    .convolve = inherited<&KernelTable::convolve>,
    .unit_length = inherited<&KernelTable::unit_length>,
    .delta_rule = inherited<&KernelTable::delta_rule>,
    .attend = inherited<&KernelTable::attend>,
    .merge = inherited<&KernelTable::merge>,
    .finish = inherited<&KernelTable::finish>,
};
}  // namespace llm
