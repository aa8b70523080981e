#ifndef LLM_QUANT_KERNELS_PACKED_MATRIX_H_
#define LLM_QUANT_KERNELS_PACKED_MATRIX_H_

#include <cstddef>
#include <span>
#include <string_view>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "quant/contract/contract.h"
#include "quant/formats/block_traits.h"
#include "quant/kernels/packed_layout.h"

namespace llm {

/// PackedLayout's fields of `type`.
std::span<const PackedField> packed_fields(WeightType type);

/// A weight matrix in the one layout that every kernel reads: panels of 16 rows, and inside a panel
/// the 16 rows' blocks interleaved element by element, in the order of packed_layout.h. Byte b of
/// an element that is s bytes long and has p bytes of its row's block before it in that order, of
/// row r of the panel, lies at
///
///   panel + block * 16 * block_bytes + 16 * p + r * s + b
///
/// so the bytes are the file's, only moved: nothing is expanded or rounded, and any row can be
/// taken out again. Rows are padded to a multiple of 16 with zero bytes, which every type reads as
/// zero weights.
class PackedMatrix {
 public:
  static constexpr std::size_t kPanelRows = contract::kPanelRows;

  PackedMatrix() = default;

  /// Reserves the memory; all weights are zero until pack_panels().
  /// @pre n_cols is a multiple of the type's block_weights
  /// Errors: kResource with the MiB needed.
  static Result<PackedMatrix> allocate(WeightType type, std::size_t n_rows, std::size_t n_cols,
                                       std::string_view what);

  /// Packs panels [begin, end) from `file_rows`, the whole matrix as in the file (row-major, no
  /// alignment needed). Different ranges may be packed by different threads. Cost: reads and writes
  /// each byte once.
  void pack_panels(std::size_t begin, std::size_t end, std::span<const std::byte> file_rows);

  /// Packs panel `p` from its own rows, as above: 16, of the last panel those that are left. The
  /// caller may take them from anywhere.
  void pack_panel(std::size_t p, std::span<const std::byte> rows);

  /// allocate() and pack all of it on this thread.
  static Result<PackedMatrix> pack(WeightType type, std::size_t n_rows, std::size_t n_cols,
                                   std::span<const std::byte> file_rows, std::string_view what);

  /// Restores the file's bytes of row `r`. @pre out.size() == row_bytes(type(), n_cols())
  void extract_row(std::size_t r, std::span<std::byte> out) const;

  WeightType type() const { return type_; }
  std::size_t n_rows() const { return n_rows_; }
  std::size_t n_cols() const { return n_cols_; }
  std::size_t n_blocks() const { return n_cols_ / block_traits(type_).block_weights; }
  std::size_t n_panels() const { return (n_rows_ + kPanelRows - 1) / kPanelRows; }
  std::size_t panel_bytes() const { return kPanelRows * row_bytes(type_, n_cols_); }
  const std::byte* panel(std::size_t p) const { return data_.data() + p * panel_bytes(); }
  std::size_t bytes() const { return data_.size(); }

 private:
  WeightType type_ = WeightType::kF32;
  std::size_t n_rows_ = 0;
  std::size_t n_cols_ = 0;
  AlignedBuffer<std::byte> data_;
};

}  // namespace llm

#endif  // LLM_QUANT_KERNELS_PACKED_MATRIX_H_
