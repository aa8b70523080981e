#include "bench/peak_unit.h"

namespace llm {
extern const PeakKernels kPeakNeon;
const PeakKernels kPeakNeon = make_peak_kernels<NeonOps>();
}  // namespace llm
