#include "quant/kernels/unit.h"

namespace llm {
extern const KernelTable kKernelsAvx2;
const KernelTable kKernelsAvx2 = make_table<Avx2Ops>();
}  // namespace llm
