#include "quant/kernels/packed_matrix.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <xsimd/xsimd.hpp>

#include "base/check.h"
#include "quant/formats/block_visit.h"

namespace llm {
namespace {

using F = PackedField;

constexpr std::size_t kRows = PackedMatrix::kPanelRows;
constexpr std::size_t kPiece = 16;  ///< bytes of a row that are moved at once

/// Turns 16 rows of 16 bytes into columns of elements T: element c of row r becomes element
/// 16 c + r. Each round of interleaving register i with register i + 8 rotates the bits of an
/// element's index (row, then column) by one; after four the row's bits are the low ones.
template <class T>
void transpose(std::array<xsimd::make_sized_batch_t<T, kPiece / sizeof(T)>, kRows>& r) {
  for (int round = 0; round < 4; ++round) {
    auto next = r;
    for (std::size_t i = 0; i < kRows / 2; ++i) {
      next[2 * i] = xsimd::zip_lo(r[i], r[i + kRows / 2]);
      next[2 * i + 1] = xsimd::zip_hi(r[i], r[i + kRows / 2]);
    }
    r = next;
  }
}

/// Packs `n` elements T, at most 16 bytes, of n_rows rows. Of each row 16 bytes are read if
/// `whole`.
template <class T>
void pack_piece(const std::byte* rows, std::size_t row_stride, std::size_t n_rows, std::size_t n,
                bool whole, std::byte* out) {
  using Batch = xsimd::make_sized_batch_t<T, kPiece / sizeof(T)>;
  std::array<Batch, kRows> r;
  for (std::size_t row = 0; row < kRows; ++row) {
    T bytes[kPiece / sizeof(T)] = {};
    if (row < n_rows) std::memcpy(bytes, rows + row * row_stride, whole ? kPiece : n * sizeof(T));
    r[row] = Batch::load_unaligned(bytes);
  }
  transpose<T>(r);
  // Column c of 16 rows fills sizeof(T) registers.
  for (std::size_t i = 0; i < n * sizeof(T); ++i) {
    T bytes[kPiece / sizeof(T)];
    r[i].store_unaligned(bytes);
    std::memcpy(out + i * kPiece, bytes, kPiece);
  }
}

/// Packs one field of one block of n_rows rows; `readable` bytes of each row follow its beginning.
template <class T>
void pack_field(const std::byte* rows, std::size_t row_stride, std::size_t n_rows,
                std::size_t n_bytes, std::size_t readable, std::byte* out) {
  for (std::size_t at = 0; at < n_bytes; at += kPiece) {
    const std::size_t n = std::min(kPiece, n_bytes - at);
    const bool whole = at + kPiece <= readable;
    // The common case with constants, which lets the compiler unroll.
    if (whole && n_rows == kRows) {
      pack_piece<T>(rows + at, row_stride, kRows, n / sizeof(T), true, out + kRows * at);
    } else {
      pack_piece<T>(rows + at, row_stride, n_rows, n / sizeof(T), whole, out + kRows * at);
    }
  }
}

/// Packs one block of n_rows rows, of `block_bytes` each.
void pack_block(std::span<const F> fields, const std::byte* rows, std::size_t row_stride,
                std::size_t n_rows, std::size_t block_bytes, std::byte* out) {
  for (const F& field : fields) {
    const auto pack = [&](auto element) {
      pack_field<decltype(element)>(rows + field.offset, row_stride, n_rows, field.bytes(),
                                    block_bytes - field.offset, out);
    };
    switch (field.element_bytes) {
      case 1:
        pack(std::uint8_t{});
        break;
      case 2:
        pack(std::uint16_t{});
        break;
      default:
        pack(std::uint32_t{});
        break;
    }
    out += kRows * field.bytes();
  }
}

}  // namespace

std::span<const PackedField> packed_fields(WeightType type) {
  return visit_block_format(type, []<typename Block>() -> std::span<const PackedField> {
    static_assert(covers_block<Block>());
    return PackedLayout<Block>::kFields;
  });
}

Result<PackedMatrix> PackedMatrix::allocate(WeightType type, std::size_t n_rows, std::size_t n_cols,
                                            std::string_view what) {
  PackedMatrix matrix;
  matrix.type_ = type;
  matrix.n_rows_ = n_rows;
  matrix.n_cols_ = n_cols;
  const CheckedSize bytes = CheckedSize(matrix.n_panels()) * matrix.panel_bytes();
  LLM_TRY(matrix.data_,
          AlignedBuffer<std::byte>::allocate(bytes.value().value_or(UINT64_MAX), what));
  return matrix;
}

void PackedMatrix::pack_panels(std::size_t begin, std::size_t end,
                               std::span<const std::byte> file_rows) {
  const std::size_t stride = row_bytes(type_, n_cols_);
  LLM_CHECK(file_rows.size() == n_rows_ * stride && end <= n_panels());
  for (std::size_t p = begin; p < end; ++p) {
    const std::size_t rows = std::min(kPanelRows, n_rows_ - p * kPanelRows);
    pack_panel(p, file_rows.subspan(p * kPanelRows * stride, rows * stride));
  }
}

void PackedMatrix::pack_panel(std::size_t p, std::span<const std::byte> rows) {
  const std::size_t stride = row_bytes(type_, n_cols_);
  const std::size_t n = std::min(kPanelRows, n_rows_ - p * kPanelRows);
  LLM_CHECK(p < n_panels() && rows.size() == n * stride);
  std::span<const F> fields = packed_fields(type_);
  std::size_t block_bytes = block_traits(type_).block_bytes;
  // Blocks of one field lie in a panel as one block with all their elements.
  const F all{0, fields[0].element_bytes, fields[0].count * n_blocks()};
  if (fields.size() == 1) {
    fields = std::span(&all, 1);
    block_bytes = stride;
  }
  std::byte* packed = data_.data() + p * panel_bytes();
  for (std::size_t at = 0; at < stride; at += block_bytes)
    pack_block(fields, rows.data() + at, stride, n, block_bytes, packed + kPanelRows * at);
}

Result<PackedMatrix> PackedMatrix::pack(WeightType type, std::size_t n_rows, std::size_t n_cols,
                                        std::span<const std::byte> file_rows,
                                        std::string_view what) {
  LLM_TRY(PackedMatrix matrix, allocate(type, n_rows, n_cols, what));
  matrix.pack_panels(0, matrix.n_panels(), file_rows);
  return matrix;
}

void PackedMatrix::extract_row(std::size_t r, std::span<std::byte> out) const {
  LLM_CHECK(r < n_rows_ && out.size() == row_bytes(type_, n_cols_));
  const std::size_t block_bytes = block_traits(type_).block_bytes;
  const std::byte* packed = panel(r / kPanelRows);
  for (std::size_t b = 0; b < n_blocks(); ++b) {
    for (const F& field : packed_fields(type_)) {
      for (std::size_t i = 0; i < field.count; ++i, packed += kPanelRows * field.element_bytes) {
        std::memcpy(out.data() + b * block_bytes + field.offset + i * field.element_bytes,
                    packed + r % kPanelRows * field.element_bytes, field.element_bytes);
      }
    }
  }
}

}  // namespace llm
