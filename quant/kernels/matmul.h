#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "base/thread_team.h"
#include "quant/formats/activations.h"
#include "quant/kernels/kernel_table.h"
#include "quant/kernels/packed_matrix.h"

namespace llm {

/// A view of T activation rows in one format, as the kernels read them, in the caller's memory.
/// Copies refer to the same rows; each worker makes its own.
class ActivationMatrix {
 public:
  /// Bytes that a batch needs; f32 is the widest format.
  static std::size_t bytes(ActivationFormat format, std::size_t n_tokens, std::size_t n_cols);

  /// @pre memory.size() >= bytes(...), 64-byte aligned; n_cols is a multiple of the format's block
  ActivationMatrix(std::span<std::byte> memory, ActivationFormat format, std::size_t n_tokens,
                   std::size_t n_cols);

  /// Quantizes (or copies) row t. Different rows may be stored by different workers.
  void store(const KernelTable& kernels, std::size_t t, std::span<const float> x);

  /// Makes row t what row `from_t` of `from` is. @pre both have one format and one n_cols
  void copy_row(std::size_t t, const ActivationMatrix& from, std::size_t from_t);

  ActivationFormat format() const { return format_; }
  std::size_t n_tokens() const { return n_tokens_; }
  std::size_t n_cols() const { return n_cols_; }
  const void* data() const { return data_; }

 private:
  std::byte* data_;
  ActivationFormat format_;
  std::size_t n_tokens_;
  std::size_t n_cols_;
};

/// Scratch memory of one thread for products and attention.
using Workspace = AlignedBuffer<std::byte>;

/// What becomes of a product.
enum class Epilogue {
  kStore,  ///< y = W x
  kAdd,    ///< y = y + W x, the sum rounded once more
};

/// The rows of a matrix (columns of y) cut into tasks, for workers who take them by demand
/// (Worker::take_tasks).
class RowTasks {
 public:
  /// @param unit  rows that stay together; the kernels compute whole panels, so a common multiple
  ///              of it and PackedMatrix::kPanelRows does
  /// Of one token, a task reads 64 to 256 KiB of weights: enough for the hardware to stream, little
  /// to wait for. Of a batch, every worker gets about 16, in whole register tiles. Up to kFewTokens
  /// tokens of types with one scale a block are no batch.
  RowTasks(const PackedMatrix& w, std::size_t n_tokens, int n_workers, std::size_t unit = 1);

  std::size_t size() const { return (n_rows_ + rows_per_task_ - 1) / rows_per_task_; }
  /// Rows of task i. @pre i < size()
  Worker::Range operator[](std::size_t i) const { return {begin_of(i), begin_of(i + 1)}; }

 private:
  std::size_t begin_of(std::size_t i) const { return std::min(i * rows_per_task_, n_rows_); }

  std::size_t n_rows_;
  std::size_t rows_per_task_;
};

/// y = W x in the given rows of W, times their scale, for T tokens; decode is T = 1 and nothing
/// else differs.
///
/// @param rows  begins with a panel, ends with a panel or the last row
/// @param x  activations in w's format, or f32 for --compute f32
/// @param y  (T, y_stride), f32; row r of w goes to column r
/// @param workspace  at least matmul_workspace_bytes(T), this worker's own
/// @pre   x.n_cols() == w.n_cols(); nothing is added where w has scales
/// @post  equal bits for any division of the rows, T and instruction set (docs/numerics.md)
/// Cost:  T = 1 reads the rows' weights once and is memory-bound: judge it in GB/s. Large T is
/// bound by the rate of 8-bit dot products: judge it in MAC/s. Panels that do
/// not lie in memory are packed first, some at a time.
void matmul(const KernelTable& kernels, const PackedMatrix& w, Worker::Range rows,
            const ActivationMatrix& x, float* y, std::size_t y_stride, Epilogue epilogue,
            Workspace& workspace);

}  // namespace llm
