#include "bench/peak_unit.h"

namespace llm {
extern const PeakKernels kPeakAvxVnni;
const PeakKernels kPeakAvxVnni = make_peak_kernels<AvxVnniOps>();
}  // namespace llm
