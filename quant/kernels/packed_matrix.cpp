#include "quant/kernels/packed_matrix.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <xsimd/xsimd.hpp>

#include "base/check.h"

namespace llm {
namespace {

using F = PackedField;

// The packed order of each type is the order in which its codec reads (quant/kernels/codecs.h),
// because hardware prefetches what is read from end to end: in the file's order, with scales last
// and high bits apart, a Q6_K matrix streams at less than a third of the speed. The static_asserts
// below prove that nothing is left out.
constexpr std::array kF32 = {F{0, 4, 1}};
constexpr std::array kF16 = {F{0, 2, 1}};
constexpr std::array kQ4_0 = {F{0, 2, 1}, F{2, 4, 4}};
constexpr std::array kQ4_1 = {F{0, 2, 2}, F{4, 4, 4}};
constexpr std::array kQ5_0 = {F{0, 2, 1}, F{2, 4, 1}, F{6, 4, 4}};
constexpr std::array kQ5_1 = {F{0, 2, 2}, F{4, 4, 1}, F{8, 4, 4}};
constexpr std::array kQ8_0 = {F{0, 2, 1}, F{2, 4, 8}};
constexpr std::array kQ2_K = {F{0, 1, 16}, F{16, 4, 16}, F{80, 2, 2}};
constexpr std::array kQ3_K = {F{96, 1, 12}, F{0, 4, 8}, F{32, 4, 16}, F{108, 2, 1}};
constexpr std::array kQ4_K = {F{0, 2, 2}, F{4, 1, 12}, F{16, 4, 32}};
// After d, dmin and scales: four words of qh, then those four words of each run of qs; the same for
// the other four.
constexpr std::array kQ5_K = {F{0, 2, 2},  F{4, 1, 12},  F{16, 4, 4},  F{48, 4, 4},
                              F{80, 4, 4}, F{112, 4, 4}, F{144, 4, 4}, F{32, 4, 4},
                              F{64, 4, 4}, F{96, 4, 4},  F{128, 4, 4}, F{160, 4, 4}};
// Four times between scales and d: four words of qh and of both runs of ql that they complete.
constexpr std::array kQ6_K = {F{192, 1, 16}, F{128, 4, 4}, F{0, 4, 4},   F{32, 4, 4}, F{144, 4, 4},
                              F{16, 4, 4},   F{48, 4, 4},  F{160, 4, 4}, F{64, 4, 4}, F{96, 4, 4},
                              F{176, 4, 4},  F{80, 4, 4},  F{112, 4, 4}, F{208, 2, 1}};
constexpr std::array kQ8_K = {F{0, 4, 1}, F{4, 4, 64}, F{260, 2, 16}};

/// Every byte of a block is in exactly one field.
constexpr bool covers(std::span<const F> fields, std::size_t block_bytes) {
  for (std::size_t byte = 0; byte < block_bytes; ++byte) {
    std::size_t found = 0;
    for (const F& field : fields) {
      if (byte >= field.offset && byte - field.offset < field.bytes()) ++found;
    }
    if (found != 1) return false;
  }
  return true;
}
static_assert(covers(kF32, 4) && covers(kF16, 2) && covers(kQ4_0, 18) && covers(kQ4_1, 20));
static_assert(covers(kQ5_0, 22) && covers(kQ5_1, 24) && covers(kQ8_0, 34) && covers(kQ2_K, 84));
static_assert(covers(kQ3_K, 110) && covers(kQ4_K, 144) && covers(kQ5_K, 176));
static_assert(covers(kQ6_K, 210) && covers(kQ8_K, 292));

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
  switch (type) {
    case WeightType::kF32:
      return kF32;
    case WeightType::kF16:
    case WeightType::kBF16:
      return kF16;
    case WeightType::kQ4_0:
      return kQ4_0;
    case WeightType::kQ4_1:
      return kQ4_1;
    case WeightType::kQ5_0:
      return kQ5_0;
    case WeightType::kQ5_1:
      return kQ5_1;
    case WeightType::kQ8_0:
      return kQ8_0;
    case WeightType::kQ2_K:
      return kQ2_K;
    case WeightType::kQ3_K:
      return kQ3_K;
    case WeightType::kQ4_K:
      return kQ4_K;
    case WeightType::kQ5_K:
      return kQ5_K;
    case WeightType::kQ6_K:
      return kQ6_K;
    case WeightType::kQ8_K:
      return kQ8_K;
  }
  return {};
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
  std::span<const F> fields = packed_fields(type_);
  std::size_t block_bytes = block_traits(type_).block_bytes;
  // Blocks of one field lie in a panel as one block with all their elements.
  const F all{0, fields[0].element_bytes, fields[0].count * n_blocks()};
  if (fields.size() == 1) {
    fields = std::span(&all, 1);
    block_bytes = stride;
  }
  for (std::size_t p = begin; p < end; ++p) {
    std::byte* packed = data_.data() + p * panel_bytes();
    const std::size_t rows = std::min(kPanelRows, n_rows_ - p * kPanelRows);
    const std::byte* from = file_rows.data() + p * kPanelRows * stride;
    for (std::size_t at = 0; at < stride; at += block_bytes) {
      pack_block(fields, from + at, stride, rows, block_bytes, packed + kPanelRows * at);
    }
  }
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
