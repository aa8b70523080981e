#include "bench/peak_unit.h"

namespace llm {
extern const PeakKernels kPeakAvx512Vnni;
const PeakKernels kPeakAvx512Vnni = make_peak_kernels<Avx512VnniOps>();
}  // namespace llm
