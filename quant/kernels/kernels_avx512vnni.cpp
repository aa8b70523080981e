#include "quant/kernels/unit.h"

namespace llm {
extern const KernelTable kKernelsAvx512Vnni;
const KernelTable kKernelsAvx512Vnni = make_table<Avx512VnniOps>();
}  // namespace llm
