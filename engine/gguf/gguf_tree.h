#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "base/sha256.h"
#include "engine/gguf/hash_work.h"

namespace llm {

/// Consecutive bytes of a GGUF that are hashed as one: what stands before the tensor data, a
/// tensor's data, or what stands between or after tensors.
struct GgufSegment {
  enum class Kind : std::uint8_t { kMetadata, kTensor, kPadding };

  Kind kind = Kind::kMetadata;
  std::size_t part = 0;      ///< of a split model, from 0
  std::uint64_t offset = 0;  ///< in that part
  std::uint64_t bytes = 0;   ///< at least 1
  std::string type = {};     ///< of a tensor: its type and dims, columns first: "Q4_K 256x32"
  /// Of a tensor; of padding that of the tensor before it, empty after metadata.
  std::string name = {};
  /// Of each GgufTree::kChunkBytes, of which the last may have fewer.
  std::vector<Sha256Digest> chunks = {};

  /// "metadata", "tensor" or "padding".
  std::string_view kind_name() const;
  /// `tensor "NAME"`, "metadata" or `padding after tensor "NAME"`: for messages.
  std::string title() const;
  /// Its line in a manifest, which its hash covers: "tensor 4608 Q4_K 256x32 NAME".
  std::string line() const;
  Sha256Digest hash() const;
};

/// A Merkle tree (SHA-256) over every byte of a GGUF, of all parts of a split one. Its text form is
/// a manifest of the file; docs/manifest.md defines both.
struct GgufTree {
  static constexpr std::uint64_t kChunkBytes = std::uint64_t{1} << 20;

  /// In the order of the file; nothing lies between them. Metadata begins each part.
  std::vector<GgufSegment> segments;

  Sha256Digest root() const;
  std::size_t n_parts() const { return segments.empty() ? 0 : segments.back().part + 1; }

  /// The manifest. Equal trees have equal texts.
  std::string text() const;
  /// The tree of a manifest, which may be hostile: nothing is allocated on the word of a number.
  /// Errors, with the line and its offset: kMalformed for what text() would not write, a chunk too
  /// many or too few, a size that is not that of type and dims, a name twice, a root that is not
  /// that of the lines; kUnsupported for another version.
  static Result<GgufTree> parse(std::string_view text);
};

/// The segments of a mapped GGUF, without hashes. Errors: those of GgufFile::parse, with the part.
/// Cost: O(metadata).
Result<std::vector<GgufSegment>> gguf_segments(const MappedFile& file);

/// Adds the hashing of all chunks to `work`. Pages are given back as they are done.
/// @param segments  inside `file`; their chunks are overwritten when `work` runs
/// @pre both outlive the run
void add_chunks(HashWork& work, const MappedFile& file, std::vector<GgufSegment>& segments);

}  // namespace llm
