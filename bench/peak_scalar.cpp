#include "bench/peak_unit.h"

namespace llm {
extern const PeakKernels kPeakScalar;
const PeakKernels kPeakScalar = make_peak_kernels<ScalarOps>();
}  // namespace llm
