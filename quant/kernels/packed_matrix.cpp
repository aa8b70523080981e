#include "quant/kernels/packed_matrix.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <xsimd/xsimd.hpp>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "quant/formats/block_visit.h"

namespace llm {
namespace {

using F = PackedField;

constexpr std::size_t kRows = PackedMatrix::kPanelRows;
constexpr std::size_t kPiece = 16;  ///< bytes of a row that are moved at once
constexpr std::size_t kFew = 4;     ///< so few are moved one by one sooner

/// Interleaves 16 bytes of each of 16 rows: element c of row r becomes element 16 c + r. The rows
/// are taken in groups of as many as a register has elements T, and each group is transposed: a
/// round of interleaving register i with the one half a group further rotates the bits of an
/// element's index (row, then column) by one, so after log2(columns) rounds they have changed
/// places.
template <class T>
void pack_piece(const std::byte* rows, std::size_t row_stride, std::byte* out) {
  constexpr std::size_t kColumns = kPiece / sizeof(T);
  constexpr std::size_t kGroups = kRows / kColumns;
  using Batch = xsimd::make_sized_batch_t<T, kColumns>;
  for (std::size_t group = 0; group < kGroups; ++group) {
    std::array<Batch, kColumns> r;
    for (std::size_t i = 0; i < kColumns; ++i) {
      T elements[kColumns];
      std::memcpy(elements, rows + (group * kColumns + i) * row_stride, kPiece);
      r[i] = Batch::load_unaligned(elements);
    }
    for (std::size_t round = kColumns; round > 1; round /= 2) {
      std::array<Batch, kColumns> next;
      for (std::size_t i = 0; i < kColumns / 2; ++i) {
        next[2 * i] = xsimd::zip_lo(r[i], r[i + kColumns / 2]);
        next[2 * i + 1] = xsimd::zip_hi(r[i], r[i + kColumns / 2]);
      }
      r = next;
    }
    for (std::size_t c = 0; c < kColumns; ++c) {
      T elements[kColumns];
      r[c].store_unaligned(elements);
      std::memcpy(out + (c * kGroups + group) * kPiece, elements, kPiece);
    }
  }
}

/// The same of n elements of n_rows rows, one by one; rows that are not there are zero.
template <class T>
void pack_elements(const std::byte* rows, std::size_t row_stride, std::size_t n_rows, std::size_t n,
                   std::byte* out) {
  for (std::size_t c = 0; c < n; ++c) {
    for (std::size_t r = 0; r < kRows; ++r) {
      T element{};
      if (r < n_rows) std::memcpy(&element, rows + r * row_stride + c * sizeof(T), sizeof(T));
      std::memcpy(out + (kRows * c + r) * sizeof(T), &element, sizeof(T));
    }
  }
}

/// Starts reading as many bytes of `ahead` as are being written: the core packs while they come.
void prefetch(const std::byte* ahead, std::size_t n_bytes) {
  constexpr std::size_t kLine = 64;
  for (std::size_t i = 0; i < n_bytes; i += kLine) __builtin_prefetch(ahead + i, 0, 2);
}

/// Packs one field of one block of n_rows rows; `readable` bytes of each row follow its beginning.
template <class T>
void pack_field(const std::byte* rows, std::size_t row_stride, std::size_t n_rows,
                std::size_t n_bytes, std::size_t readable, std::byte* out, const std::byte* ahead) {
  for (std::size_t at = 0; at < n_bytes; at += kPiece, out += kRows * kPiece) {
    const std::size_t n = std::min(kPiece, n_bytes - at);
    if (ahead != nullptr) prefetch(ahead + kRows * at, kRows * n);
    if (n_rows < kRows || at + kPiece > readable || n <= kFew) {
      pack_elements<T>(rows + at, row_stride, n_rows, n / sizeof(T), out);
    } else if (n == kPiece) {
      pack_piece<T>(rows + at, row_stride, out);
    } else {
      std::byte piece[kRows * kPiece];
      pack_piece<T>(rows + at, row_stride, piece);
      std::memcpy(out, piece, kRows * n);
    }
  }
}

/// Packs one block of n_rows rows, of `block_bytes` each.
void pack_block(std::span<const F> fields, const std::byte* rows, std::size_t row_stride,
                std::size_t n_rows, std::size_t block_bytes, std::byte* out,
                const std::byte* ahead) {
  for (const F& field : fields) {
    const auto pack = [&](auto element) {
      pack_field<decltype(element)>(rows + field.offset, row_stride, n_rows, field.bytes(),
                                    block_bytes - field.offset, out, ahead);
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
    if (ahead != nullptr) ahead += kRows * field.bytes();
  }
}

}  // namespace

std::span<const PackedField> packed_fields(WeightType type) {
  return visit_block_format(type, []<typename Block>() -> std::span<const PackedField> {
    static_assert(covers_block<Block>());
    return PackedLayout<Block>::kFields;
  });
}

std::size_t PackedShape::rows_of_panel(std::size_t p) const {
  return std::min(kPanelRows, n_rows - p * kPanelRows);
}

void pack_panel(const PackedShape& shape, std::size_t p, std::span<const std::byte> rows,
                std::span<std::byte> panel, const std::byte* ahead) {
  const std::size_t stride = row_bytes(shape.type, shape.n_cols);
  LLM_CHECK(p < shape.n_panels() && panel.size() == shape.panel_bytes());
  const std::size_t n = shape.rows_of_panel(p);
  LLM_CHECK(rows.size() == n * stride);
  std::span<const F> fields = packed_fields(shape.type);
  std::size_t block_bytes = block_traits(shape.type).block_bytes;
  // Blocks of one field lie in a panel as one block with all their elements.
  const F all{0, fields[0].element_bytes, fields[0].count * shape.n_blocks()};
  if (fields.size() == 1) {
    fields = std::span(&all, 1);
    block_bytes = stride;
  }
  for (std::size_t at = 0; at < stride; at += block_bytes)
    pack_block(fields, rows.data() + at, stride, n, block_bytes, panel.data() + kRows * at,
               ahead == nullptr ? nullptr : ahead + kRows * at);
}

Result<PackedMatrix> PackedMatrix::pack(WeightType type, std::size_t n_rows, std::size_t n_cols,
                                        std::span<const std::byte> file_rows,
                                        std::string_view what) {
  const PackedShape shape{type, n_rows, n_cols};
  const std::size_t stride = row_bytes(type, n_cols);
  LLM_CHECK(file_rows.size() == n_rows * stride);
  LLM_TRY(auto memory,
          AlignedBuffer<std::byte>::allocate(shape.bytes().value().value_or(UINT64_MAX), what));
  for (std::size_t p = 0; p < shape.n_panels(); ++p) {
    pack_panel(shape, p,
               file_rows.subspan(p * kPanelRows * stride, shape.rows_of_panel(p) * stride),
               memory.span().subspan(p * shape.panel_bytes(), shape.panel_bytes()));
  }
  const auto kept = std::make_shared<const AlignedBuffer<std::byte>>(std::move(memory));
  return PackedMatrix(shape, std::shared_ptr<const std::byte>(kept, kept->data()));
}

void PackedMatrix::extract_row(std::size_t r, std::span<std::byte> out) const {
  LLM_CHECK(r < n_rows() && out.size() == row_bytes(type(), n_cols()));
  const std::size_t block_bytes = block_traits(type()).block_bytes;
  const std::size_t p = r / kPanelRows;
  const std::byte* packed = panels(p, p + 1).first;
  for (std::size_t b = 0; b < n_blocks(); ++b) {
    for (const F& field : packed_fields(type())) {
      for (std::size_t i = 0; i < field.count; ++i, packed += kPanelRows * field.element_bytes) {
        std::memcpy(out.data() + b * block_bytes + field.offset + i * field.element_bytes,
                    packed + r % kPanelRows * field.element_bytes, field.element_bytes);
      }
    }
  }
}

}  // namespace llm
