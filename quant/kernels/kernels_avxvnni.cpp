#include "quant/kernels/unit.h"

namespace llm {
extern const KernelTable kKernelsAvxVnni;
const KernelTable kKernelsAvxVnni = make_table<AvxVnniOps>();
}  // namespace llm
