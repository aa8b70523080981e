// Products in f32 are what AVX2 does, in its own unit: they take long to compile.

#include "quant/kernels/unit.h"

namespace llm {
extern const KernelTable kKernelsAvx2;
}

namespace {

template <>
void matmul<AvxVnniOps>(const llm::MatmulArgs& args) {
  return in_f32(args) ? llm::kKernelsAvx2.matmul(args) : matmul_of_codes<AvxVnniOps>(args);
}

}  // namespace

namespace llm {
extern const KernelTable kKernelsAvxVnni;
const KernelTable kKernelsAvxVnni = make_table<AvxVnniOps>();
}  // namespace llm
