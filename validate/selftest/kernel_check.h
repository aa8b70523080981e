#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/model/model_file.h"
#include "quant/kernels/kernel_table.h"
#include "validate/report/report.h"

namespace llm {

using KernelTables = std::span<const KernelTable* const>;

/// The sizes that kernels are checked at.
struct KernelSizes {
  std::size_t d_model = 0;
  std::size_t d_ff = 0;
  std::size_t n_heads = 0;
  std::size_t n_kv_heads = 0;          ///< divides n_heads
  std::size_t head_dim = 0;            ///< even
  std::size_t rope_pairs = 0;          ///< 1 .. head_dim / 2
  std::size_t context = 0;             ///< positions
  std::vector<WeightType> types = {};  ///< of matrices
  bool large_batches = true;           ///< products of more than 33 tokens

  std::size_t heads_per_kv() const { return n_heads / n_kv_heads; }
};

/// The sizes of a model, and the types of its matrices.
KernelSizes kernel_sizes(const ModelFile& model);

/// The tables that this build has and this CPU can run.
std::vector<const KernelTable*> kernel_tables_here();

/// Calls every entry of each table by itself and compares, bit for bit, with the definition in
/// plain loops (docs/numerics.md). One check per entry, for matmul one per weight type, named
/// "kernel ENTRY"; one that fails names the instruction set, the sizes and the first difference. A
/// last check says what was covered, and on this CPU or with these sizes was not.
///
/// Inputs are seeded: plain, with outliers, denormal, huge, with NaN and infinities, and values
/// near every edge of exp and of rounding. Sizes are the given ones, their neighbours, and every
/// remainder of 16 and 32. Pointers are aligned as little as the contract allows. Guards around
/// each output find writes outside it; guards of NaN around inputs and NaN in all workspace find
/// values that should not have been used.
///
/// - matmul: int8 and f32, stored and added, ranges of panels, rows of y with gaps; 1, 2, 7 and 13
///   tokens on few columns and on those of the model's matrices, 1 .. 33 on some, 49 .. 54 and
///   507 .. 512 on one;
/// - attend: every type of cache; up to 1,025 keys around every multiple of 256, decode by single
///   chunks, prefill of up to 33 tokens; then one token at the end of the context, as far as
///   kMostCached allows.
///
/// @pre no table is null and each can run here
/// Errors: kResource for packed weights.
/// Cost: mostly the plain loops of attention: seconds for head_dim * heads_per_kv() = 512, one
/// thread.
Result<std::vector<CheckResult>> check_kernels(KernelTables tables, const KernelSizes& sizes,
                                               const Progress& progress = {});

/// Most elements of keys that the longest case of attend holds, 128 MiB with all copies.
inline constexpr std::size_t kMostCached = std::size_t{1} << 23;

/// Positions of attend's longest case.
std::size_t longest_attended(const KernelSizes& sizes);

// The parts of check_kernels(), an entry of KernelTable each.

CheckResult check_rms_norm(KernelTables tables, const KernelSizes& sizes);
CheckResult check_rope(KernelTables tables, const KernelSizes& sizes);
CheckResult check_activate(KernelTables tables, const KernelSizes& sizes);
CheckResult check_soft_cap(KernelTables tables, const KernelSizes& sizes);
CheckResult check_axpy(KernelTables tables, const KernelSizes& sizes);
CheckResult check_exp_distances(KernelTables tables, const KernelSizes& sizes);
CheckResult check_to_half(KernelTables tables, const KernelSizes& sizes);
CheckResult check_quantize_q8k(KernelTables tables, const KernelSizes& sizes);
CheckResult check_quantize_q8x32(KernelTables tables, const KernelSizes& sizes);
CheckResult check_attend(KernelTables tables, const KernelSizes& sizes);
CheckResult check_convolve(KernelTables tables, const KernelSizes& sizes);
CheckResult check_unit_length(KernelTables tables, const KernelSizes& sizes);
CheckResult check_delta_rule(KernelTables tables, const KernelSizes& sizes);
CheckResult check_merge(KernelTables tables, const KernelSizes& sizes);
CheckResult check_finish(KernelTables tables, const KernelSizes& sizes);
/// Errors: kResource.
Result<CheckResult> check_matmul(KernelTables tables, const KernelSizes& sizes, WeightType type);

}  // namespace llm
