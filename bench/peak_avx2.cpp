#include "bench/peak_unit.h"

namespace llm {
extern const PeakKernels kPeakAvx2;
const PeakKernels kPeakAvx2 = make_peak_kernels<Avx2Ops>();
}  // namespace llm
