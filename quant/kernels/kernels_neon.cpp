#include "quant/kernels/unit.h"

namespace llm {
extern const KernelTable kKernelsNeon;
const KernelTable kKernelsNeon = make_table<NeonOps>();
}  // namespace llm
