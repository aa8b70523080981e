#pragma once

#include "validate/self/kernel_check.h"

namespace llm {

// The parts of check_kernels(), an entry of KernelTable each.

using KernelTables = std::span<const KernelTable* const>;

CheckResult check_rms_norm(KernelTables tables, const KernelSizes& sizes);
CheckResult check_rope(KernelTables tables, const KernelSizes& sizes);
CheckResult check_activate(KernelTables tables, const KernelSizes& sizes);
CheckResult check_axpy(KernelTables tables, const KernelSizes& sizes);
CheckResult check_exp_distances(KernelTables tables, const KernelSizes& sizes);
CheckResult check_to_half(KernelTables tables, const KernelSizes& sizes);
CheckResult check_quantize_q8k(KernelTables tables, const KernelSizes& sizes);
CheckResult check_quantize_q8x32(KernelTables tables, const KernelSizes& sizes);
CheckResult check_attend(KernelTables tables, const KernelSizes& sizes);
CheckResult check_merge(KernelTables tables, const KernelSizes& sizes);
CheckResult check_finish(KernelTables tables, const KernelSizes& sizes);
/// Errors: kResource.
Result<CheckResult> check_matmul(KernelTables tables, const KernelSizes& sizes, WeightType type);

}  // namespace llm
