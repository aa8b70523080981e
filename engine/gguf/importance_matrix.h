#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/gguf/gguf_file.h"
#include "engine/gguf/gguf_writer.h"

namespace llm {

/// What went into one matrix of a model, or into each of several that one tensor holds (experts).
struct Importance {
  std::string tensor;         ///< of the model
  std::vector<float> sums;    ///< of squares, of each column; one matrix after the other
  std::vector<float> counts;  ///< rows that were added, of each matrix; one: of all of them

  /// The mean squares: what the errors of a column's weights matter.
  /// @param n_cols  @param n_matrices  of the tensor
  /// @param unused  taken for the columns of a matrix that no row went into
  /// Errors: kMalformed for other sizes than the tensor's; kNonFinite for a sum that is NaN,
  /// infinite or negative; without `unused` kMalformed for a matrix whose count is 0. Each names
  /// tensor, matrix, column and value.
  Result<std::vector<float>> means(std::uint64_t n_cols, std::uint64_t n_matrices,
                                   const float* unused = nullptr) const;
};

/// An importance matrix, as llama.cpp's llama-imatrix writes it (tools/imatrix, MIT). As a GGUF:
/// tensors NAME.in_sum2 [columns, matrices] and NAME.counts [1, matrices], F32, for each tensor
/// NAME of the model; keys imatrix.chunk_count, imatrix.chunk_size and imatrix.datasets; other
/// tensors (NAME.in_sum, NAME.stats) are not read. In the older binary form, little-endian: the
/// number of entries (i32), of each the length of its name (i32), the name, a number of calls
/// (i32), the number of values (i32) and the values (f32), which are means times calls; then, if
/// there is more, the number of chunks (i32), and the length (i32) and name of the text.
struct ImportanceMatrix {
  std::vector<Importance> entries;  ///< in ascending order of names
  std::uint64_t n_chunks = 0;
  std::uint64_t chunk_tokens = 0;
  std::vector<std::string> texts;

  /// That of a tensor, or nullptr. Cost: O(log n).
  const Importance* find(std::string_view tensor) const;
  /// Reads either form. Errors: kMalformed and kUnsupported, those of GgufFile::parse, and: no
  /// entry, sums without counts or the other way round, another type than F32, numbers of values
  /// that are no whole matrices, negative lengths, a name twice. What values are is not looked at
  /// (means()).
  static Result<ImportanceMatrix> parse(std::span<const std::byte> bytes);
  /// Errors: of MappedFile and parse(), naming the file.
  static Result<ImportanceMatrix> open(const std::string& path);

  /// The file as GGUF. Equal matrices give equal bytes. Errors: those of GgufWriter::header().
  Result<std::vector<std::byte>> gguf_bytes() const;
};

}  // namespace llm
