#include "quant/kernels/unit.h"

namespace llm {
extern const KernelTable kKernelsAvx512;
const KernelTable kKernelsAvx512 = make_table<Avx512Ops>();
}  // namespace llm
