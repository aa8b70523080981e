#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "engine/model/model.h"
#include "engine/model/model_file.h"
#include "validate/report/report.h"

namespace llm {

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

}  // namespace llm
