#include "quant/kernels/unit.h"

namespace llm {
extern const KernelTable kKernelsScalar;
const KernelTable kKernelsScalar = make_table<ScalarOps>();
}  // namespace llm
