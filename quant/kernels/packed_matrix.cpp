#include "quant/kernels/packed_matrix.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <xsimd/xsimd.hpp>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "quant/formats/block_visit.h"

namespace llm {
namespace {

using F = PackedField;

constexpr std::size_t kRows = PackedMatrix::kPanelRows;
constexpr std::size_t kPiece = 16;  ///< bytes of a row that are moved at once

/// A round of interleaving register i with the one half the registers further rotates the bits of
/// an element's index (register, then place in it) by one.
template <class Batch, std::size_t n>
inline std::array<Batch, n> interleave(const std::array<Batch, n>& r) {
  std::array<Batch, n> next;
  _Pragma("GCC unroll 8") for (std::size_t i = 0; i < n / 2; ++i) {
    next[2 * i] = xsimd::zip_lo(r[i], r[i + n / 2]);
    next[2 * i + 1] = xsimd::zip_hi(r[i], r[i + n / 2]);
  }
  return next;
}

template <class Batch>
inline Batch load_piece(const std::byte* piece) {
  typename Batch::value_type elements[Batch::size];
  std::memcpy(elements, piece, kPiece);
  return Batch::load_unaligned(elements);
}

template <class Batch>
inline void store_piece(const Batch& batch, std::byte* out) {
  typename Batch::value_type elements[Batch::size];
  batch.store_unaligned(elements);
  std::memcpy(out, elements, kPiece);
}

/// Interleaves the first `kept` elements of 16 bytes of each of 16 rows: element c of row r becomes
/// element 16 c + r. The rows are taken in groups of as many as a register has elements T, and each
/// group is transposed: after log2(columns) rounds the bits of row and column have changed places.
template <class T, std::size_t kept>
void pack_piece(const std::byte* rows, std::size_t row_stride, std::byte* out) {
  constexpr std::size_t kColumns = kPiece / sizeof(T);
  constexpr std::size_t kGroups = kRows / kColumns;
  using Batch = xsimd::make_sized_batch_t<T, kColumns>;
  for (std::size_t group = 0; group < kGroups; ++group) {
    std::array<Batch, kColumns> r;  // in registers, so that every loop over it is unrolled
    _Pragma("GCC unroll 16") for (std::size_t i = 0; i < kColumns; ++i) r[i] =
        load_piece<Batch>(rows + (group * kColumns + i) * row_stride);
    _Pragma("GCC unroll 4") for (std::size_t round = kColumns; round > 1; round /= 2) r =
        interleave(r);
    _Pragma("GCC unroll 16") for (std::size_t c = 0; c < kept; ++c)
        store_piece(r[c], out + (c * kGroups + group) * kPiece);
  }
}

/// Interleaves two halves of each of 16 rows. A register takes four rows' pairs, so four rounds
/// move the four bits of the row to the end.
void pack_half_pairs(const std::byte* rows, std::size_t row_stride, std::byte* out) {
  using Words = xsimd::make_sized_batch_t<std::uint32_t, 4>;
  using Halves = xsimd::make_sized_batch_t<std::uint16_t, 8>;
  const auto pair = [&](std::size_t r) {
    std::uint32_t word;
    std::memcpy(&word, rows + r * row_stride, sizeof(word));
    return word;
  };
  std::array<Halves, 4> r;
  _Pragma("GCC unroll 4") for (std::size_t i = 0; i < 4; ++i) r[i] = xsimd::bitwise_cast<Halves>(
      Words{pair(4 * i), pair(4 * i + 1), pair(4 * i + 2), pair(4 * i + 3)});
  _Pragma("GCC unroll 4") for (int round = 0; round < 4; ++round) r = interleave(r);
  _Pragma("GCC unroll 4") for (std::size_t i = 0; i < 4; ++i) store_piece(r[i], out + i * kPiece);
}

/// Interleaves n elements of n_rows rows, one by one; rows that are not there are zero.
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

/// Packs one field of a block of 16 rows.
/// @tparam readable  so many bytes of each row follow the field's beginning
template <class T, std::size_t n_bytes, std::size_t readable>
void pack_field(const std::byte* rows, std::size_t row_stride, std::byte* out) {
  constexpr std::size_t kFew = 4;  // so few are moved one by one sooner
  if constexpr (sizeof(T) == 2 && n_bytes == 4) {
    pack_half_pairs(rows, row_stride, out);
  } else if constexpr (n_bytes <= kFew || readable < kPiece) {
    pack_elements<T>(rows, row_stride, kRows, n_bytes / sizeof(T), out);
  } else {
    constexpr std::size_t kNow = std::min(kPiece, n_bytes);
    pack_piece<T, kNow / sizeof(T)>(rows, row_stride, out);
    if constexpr (n_bytes > kNow) {
      pack_field<T, n_bytes - kNow, readable - kNow>(rows + kNow, row_stride, out + kRows * kNow);
    }
  }
}

/// PackedField::exchanges of one packed block of 16 rows.
void exchange_bits(const F& field, std::byte* packed) {
  const auto [first, second] = field.exchanges;
  for (std::size_t i = 0; i < kRows * field.count; ++i) {
    std::uint32_t word;
    std::memcpy(&word, packed + i * sizeof(word), sizeof(word));
    word = second(first(word));
    std::memcpy(packed + i * sizeof(word), &word, sizeof(word));
  }
}

template <std::size_t size>
using Element = std::conditional_t<size == 1, std::uint8_t,
                                   std::conditional_t<size == 2, std::uint16_t, std::uint32_t>>;

/// Packs one block of 16 rows.
template <class Block, std::size_t field = 0>
void pack_block(const std::byte* rows, std::size_t row_stride, std::byte* out) {
  if constexpr (field < PackedLayout<Block>::kFields.size()) {
    constexpr F f = PackedLayout<Block>::kFields[field];
    pack_field<Element<f.element_bytes>, f.bytes(), sizeof(Block) - f.offset>(rows + f.offset,
                                                                              row_stride, out);
    if constexpr (f.exchanges_bits()) exchange_bits(f, out);
    pack_block<Block, field + 1>(rows, row_stride, out + kRows * f.bytes());
  }
}

/// Packs one block of n_rows rows.
template <class Block>
void pack_block_of(const std::byte* rows, std::size_t row_stride, std::size_t n_rows,
                   std::byte* out) {
  for (const F& field : PackedLayout<Block>::kFields) {
    const auto pack = [&](auto element) {
      pack_elements<decltype(element)>(rows + field.offset, row_stride, n_rows, field.count, out);
    };
    if (field.element_bytes == 1) pack(std::uint8_t{});
    if (field.element_bytes == 2) pack(std::uint16_t{});
    if (field.element_bytes == 4) pack(std::uint32_t{});
    if (field.exchanges_bits()) exchange_bits(field, out);
    out += kRows * field.bytes();
  }
}

/// Starts reading memory into the core's own cache.
void prefetch(const std::byte* memory, std::size_t n_bytes) {
  constexpr std::size_t kLine = 64;
  for (std::size_t i = 0; i < n_bytes; i += kLine) __builtin_prefetch(memory + i, 0, 2);
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
                std::span<std::byte> panel, const std::byte* next) {
  const std::size_t stride = row_bytes(shape.type, shape.n_cols);
  LLM_CHECK(p < shape.n_panels() && panel.size() == shape.panel_bytes());
  const std::size_t n = shape.rows_of_panel(p);
  LLM_CHECK(rows.size() == n * stride);
  visit_block_format(shape.type, [&]<class Block>() {
    // Blocks of one element lie in a panel as one block with all their elements.
    constexpr std::size_t kStep = sizeof(Block) < kPiece ? kPiece : sizeof(Block);
    std::size_t at = 0;
    for (; at + kStep <= stride && n == kRows; at += kStep) {
      if (next != nullptr && at / kStep % 2 == 0) prefetch(next + kRows * at, kRows * kStep);
      std::byte* const out = panel.data() + kRows * at;
      if constexpr (kStep == sizeof(Block)) {
        pack_block<Block>(rows.data() + at, stride, out);
      } else {
        using T = Element<sizeof(Block)>;
        pack_piece<T, kPiece / sizeof(T)>(rows.data() + at, stride, out);
      }
    }
    for (; at < stride; at += sizeof(Block))
      pack_block_of<Block>(rows.data() + at, stride, n, panel.data() + kRows * at);
  });
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

PackedMatrix PackedMatrix::part(std::size_t first_row, std::size_t n_rows) const {
  LLM_CHECK(first_row % kPanelRows == 0 && n_rows % kPanelRows == 0);
  LLM_CHECK(first_row + n_rows <= shape_.n_rows);
  PackedMatrix out = *this;
  if (scales_.size() > 1) out.scales_ = {scale_of(first_row)};
  out.shape_.n_rows = n_rows;
  out.first_panel_ += first_row / kPanelRows;
  out.panels_ = {panels_, panels_.get() + first_row / kPanelRows * panel_bytes()};
  return out;
}

void PackedMatrix::extract_row(std::size_t r, std::span<std::byte> out) const {
  LLM_CHECK(r < n_rows() && out.size() == row_bytes(type(), n_cols()));
  const std::size_t block_bytes = block_traits(type()).block_bytes;
  const std::size_t p = r / kPanelRows;
  const std::byte* packed = panels(p, p + 1).first;
  for (std::size_t b = 0; b < n_blocks(); ++b) {
    for (const F& field : packed_fields(type())) {
      for (std::size_t i = 0; i < field.count; ++i, packed += kPanelRows * field.element_bytes) {
        std::byte* const element =
            out.data() + b * block_bytes + field.offset + i * field.element_bytes;
        std::memcpy(element, packed + r % kPanelRows * field.element_bytes, field.element_bytes);
        if (!field.exchanges_bits()) continue;
        std::uint32_t word;
        std::memcpy(&word, element, sizeof(word));
        word = field.exchanges[0](field.exchanges[1](word));
        std::memcpy(element, &word, sizeof(word));
      }
    }
  }
}

}  // namespace llm
