// Products in f32 are what AVX-512 does, in its own unit: they take long to compile.

#include "quant/kernels/unit.h"

namespace llm {
extern const KernelTable kKernelsAvx512;
}

namespace {

template <>
void matmul<Avx512VnniOps>(const llm::MatmulArgs& args) {
  return in_f32(args) ? llm::kKernelsAvx512.matmul(args) : matmul_of_codes<Avx512VnniOps>(args);
}

}  // namespace

namespace llm {
extern const KernelTable kKernelsAvx512Vnni;
const KernelTable kKernelsAvx512Vnni = make_table<Avx512VnniOps>();
}  // namespace llm
