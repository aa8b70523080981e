#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "engine/gguf/gguf_file.h"
#include "engine/gguf/hash_kind.h"
#include "engine/gguf/hash_work.h"

namespace llm {

/// One line of llama.cpp's gguf-hash: a hash of a tensor's data, or of the data of all tensors, one
/// after the other in the order of their descriptions. Metadata and padding are in none.
struct GgufHashLine {
  HashKind kind = HashKind::kSha256;
  std::string tensor;  ///< empty: all tensors
  std::string hex;

  /// `sha256 of tensor "NAME"`, "sha256 of all tensors": for messages.
  std::string title() const;
};

/// The output of gguf-hash: "sha256    HEX  FILE:TENSOR", for all tensors "sha256    HEX  FILE".
/// Source: llama.cpp, examples/gguf-hash/README.md.
struct GgufHashLines {
  std::vector<GgufHashLine> lines;

  /// @param file  the name to write, which the format needs
  std::string text(std::string_view file) const;
  /// Errors, with the line: kMalformed for what is no such line, a line twice, lines of two files
  /// (or without the one of all tensors, with which gguf-hash ends); kUnsupported for another hash.
  static Result<GgufHashLines> parse(std::string_view text);
};

/// The lines that gguf-hash writes for `gguf`: each kind of each tensor, then each kind of all.
/// Errors: kResource. Cost: reads the data twice for each kind; the hash of all tensors is one
/// thread's work.
Result<GgufHashLines> hash_lines(const MappedFile& file, const GgufFile& gguf,
                                 std::span<const HashKind> kinds, const Hashing& hashing);

}  // namespace llm
