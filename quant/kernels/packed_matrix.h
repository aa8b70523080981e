#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/checked_size.h"
#include "base/result.h"
#include "quant/formats/block_traits.h"
#include "quant/kernels/packed_layout.h"
#include "quant/numerics/contract.h"

namespace llm {

/// PackedLayout's fields of `type`.
std::span<const PackedField> packed_fields(WeightType type);

/// What a packed matrix is of. Sizes and places of its panels follow.
/// @pre n_cols is a multiple of the type's block_weights
struct PackedShape {
  static constexpr std::size_t kPanelRows = contract::kPanelRows;

  WeightType type = WeightType::kF32;
  std::size_t n_rows = 0;
  std::size_t n_cols = 0;

  std::size_t n_blocks() const { return n_cols / block_traits(type).block_weights; }
  std::size_t n_panels() const { return (n_rows + kPanelRows - 1) / kPanelRows; }
  std::size_t panel_bytes() const { return kPanelRows * row_bytes(type, n_cols); }
  /// Rows of panel `p`: 16, of the last one those that are left.
  std::size_t rows_of_panel(std::size_t p) const;
  CheckedSize bytes() const { return CheckedSize(n_panels()) * panel_bytes(); }

  bool operator==(const PackedShape&) const = default;
};

/// Packs panel `p` of a matrix from its own rows (row-major, as in the file, no alignment needed),
/// which the caller may take from anywhere. Cost: reads and writes each byte once.
/// @param next  memory as large as the panel that will be read next: every other block of it comes
///              into the core's cache meanwhile, the rest while this panel is multiplied
///              (PanelRun::next); nullptr: none
/// @pre rows.size() is that of rows_of_panel(p), panel.size() == shape.panel_bytes()
void pack_panel(const PackedShape& shape, std::size_t p, std::span<const std::byte> rows,
                std::span<std::byte> panel, const std::byte* next = nullptr);

/// Neighbouring panels, one after the other.
struct PanelRun {
  const std::byte* first;
  std::size_t end;  ///< after the last
  /// As many bytes from here on will be read for the panels after `end`; nullptr: it is not known.
  const std::byte* next = nullptr;
};

/// Has a matrix's panels while not all lie in its memory.
class PanelSource {
 public:
  virtual ~PanelSource() = default;
  /// Panels from `begin` on: all of [begin, end) where they lie in the matrix's memory; else some
  /// of them, packed for this call, until this thread's next one. Any thread may call it.
  /// @pre begin < end
  virtual PanelRun panels(std::size_t begin, std::size_t end) const = 0;
};

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
///
/// Immutable; copies refer to the same panels.
class PackedMatrix {
 public:
  static constexpr std::size_t kPanelRows = PackedShape::kPanelRows;

  PackedMatrix() = default;

  /// @param panels  shape.bytes() bytes of packed panels, and what keeps their memory
  /// @param source  has them while they do not all lie there; nullptr: they do
  /// @param scales  factors of products, of equal parts of the rows; empty: 1
  PackedMatrix(const PackedShape& shape, std::shared_ptr<const std::byte> panels,
               std::shared_ptr<const PanelSource> source = nullptr, std::vector<float> scales = {})
      : shape_(shape),
        panels_(std::move(panels)),
        source_(std::move(source)),
        scales_(std::move(scales)) {}

  /// Packs `file_rows`, the whole matrix as in the file, into memory of its own on this thread.
  /// Errors: kResource with the MiB needed.
  static Result<PackedMatrix> pack(WeightType type, std::size_t n_rows, std::size_t n_cols,
                                   std::span<const std::byte> file_rows, std::string_view what);

  /// Restores the file's bytes of row `r`. @pre out.size() == row_bytes(type(), n_cols())
  void extract_row(std::size_t r, std::span<std::byte> out) const;

  /// Rows of this matrix as one of their own; the panels are the same.
  /// @pre first_row and n_rows are multiples of kPanelRows, and inside of this matrix; where it has
  /// several scales, of the rows of one of them
  PackedMatrix part(std::size_t first_row, std::size_t n_rows) const;

  const PackedShape& shape() const { return shape_; }
  WeightType type() const { return shape_.type; }
  std::size_t n_rows() const { return shape_.n_rows; }
  std::size_t n_cols() const { return shape_.n_cols; }
  std::size_t n_blocks() const { return shape_.n_blocks(); }
  std::size_t n_panels() const { return shape_.n_panels(); }
  std::size_t panel_bytes() const { return shape_.panel_bytes(); }
  /// Panels from `begin` on, up to `end` at most. All of them, at no cost worth naming, of a matrix
  /// in memory; of one that is not, so many as are packed at a time, and overwritten by the calling
  /// thread's next call for any such matrix. @pre begin < end
  PanelRun panels(std::size_t begin, std::size_t end) const {
    if (source_ == nullptr) return {panels_.get() + begin * panel_bytes(), end};
    PanelRun run = source_->panels(first_panel_ + begin, first_panel_ + end);
    run.end -= first_panel_;
    return run;
  }
  bool has_scales() const { return !scales_.empty(); }
  /// What products with row r are multiplied by (docs/numerics.md, "Scales").
  float scale_of(std::size_t r) const {
    if (scales_.size() < 2) return scales_.empty() ? 1.0F : scales_[0];
    return scales_[r / (n_rows() / scales_.size())];
  }
  /// 0 for a matrix that is not there.
  std::size_t bytes() const { return n_panels() * panel_bytes(); }

 private:
  PackedShape shape_;
  std::shared_ptr<const std::byte> panels_;
  std::shared_ptr<const PanelSource> source_;
  std::size_t first_panel_ = 0;  ///< in source_
  std::vector<float> scales_;
};

}  // namespace llm
