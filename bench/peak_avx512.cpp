#include "bench/peak_unit.h"

namespace llm {
extern const PeakKernels kPeakAvx512;
const PeakKernels kPeakAvx512 = make_peak_kernels<Avx512Ops>();
}  // namespace llm
