#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/model/model.h"
#include "engine/model/model_file.h"
#include "engine/model/tensor_roles.h"
#include "quant/kernels/kernel_table.h"
#include "validate/report/report.h"

namespace llm {

// Parts of matrix_check.cpp.

/// How many products differ in a bit, and the first of them.
struct Mismatch {
  std::size_t count = 0;
  std::size_t row = 0;
  float actual = 0;
  float expected = 0;

  void look(std::size_t at_row, float a, float e) {
    if (std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(e)) return;
    if (count++ > 0) return;
    row = at_row;
    actual = a;
    expected = e;
  }
  /// Adds what another comparison found.
  void look_all(const Mismatch& other) {
    const std::size_t all = count + other.count;
    if (count == 0) *this = other;
    count = all;
  }
};

/// Where docs/numerics.md, "The order of a head", puts the file's row `row` of a tensor of `role`:
/// the inverse of file_row(), written by itself so that a fault there shows.
std::size_t packed_row(const HyperParameters& config, const TensorRole& role, int layer,
                       std::size_t row);

/// Where in its view the role's own row `row` in the file's order is: other roles may have heads of
/// the same tensor in turn (RoleNeed::by_head).
std::size_t row_in_view(const HyperParameters& config, const TensorRole& role, int layer,
                        std::size_t row);

/// Whether every vector of the model (norms, biases) is the file's, each element where the packed
/// order has it.
CheckResult check_vectors(const Model& model, const ModelTensors& tensors);

/// What matrices are multiplied with, and how much of that the slow kernels repeat.
struct MatrixCheckOptions {
  int threads = 1;
  std::size_t n_tokens = 19;  ///< of a batch: more than two tiles of any kernel, and a rest
  /// Tokens 0, single_step, 2 * single_step, ... of the batch are computed one by one as well.
  std::size_t single_step = 1;
  /// Rows of each matrix that the scalar kernel computes for a whole batch; 0: all. (It computes
  /// every row for one token in any case.)
  std::size_t scalar_batch_rows = 0;
  Progress progress;
};

/// Proves, on every matrix of a model, that packing and kernels are right here, bit for bit and
/// without a forward pass around them. `file` is the model's own file, opened once more:
///
/// - packing: every row, taken out of the packed matrix, is the file's bytes;
/// - the scalar kernel gives every row of the product that the definition gives on the file's
/// bytes;
/// - each instruction set of this CPU gives what scalar gives, every row, and the same for a batch
///   as for its tokens one by one (those that are taken one by one; of the others, the same on each
///   instruction set).
///
/// Activations are seeded noise with outliers and a block of zeros. int8 first, then f32; weights
/// that take activations in f32 anyway are multiplied once.
/// A difference is a failed check that names mode and instruction set, and the first tensor and
/// row. Errors: kResource.
/// Cost: per mode one product in plain loops and one on the scalar kernel, one per token on each
/// fast one.
Result<std::vector<CheckResult>> check_matrices(const Model& model, const ModelFile& file,
                                                const MatrixCheckOptions& options);

/// Checks how RowTasks cuts a matrix for the workers of a team, which for large matrices no small
/// model shows: for each type, a matrix of random blocks with 24,039 rows (1,503 panels, the last
/// of 7 rows), cut for teams of 1, 2, 3 and 7, for one token and for several. Every row must be
/// computed, and be what the definition gives. Tasks run one after the other, so that what is in
/// none of them shows on any machine. Then Worker::share() by itself: teams of 1 to 64 deal out
/// every item once, for all numbers of items up to 200.
/// @param table  of the instruction set that is used
/// Errors: kResource.
Result<std::vector<CheckResult>> check_shares(const KernelTable& table,
                                              std::span<const WeightType> types);

}  // namespace llm
