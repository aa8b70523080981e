#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "engine/gguf/gguf_tree.h"
#include "engine/gguf/hash_work.h"

namespace llm {

/// What is added to a model's path (of a split one: its first part's) for its manifest's.
inline constexpr std::string_view kManifestSuffix = ".manifest";

/// Reads a manifest. Errors: kIo; kResource beyond 64 MiB; those of GgufTree::parse().
Result<GgufTree> read_gguf_manifest(const std::string& path);

/// One thing in which a file is not what its manifest says.
struct GgufDifference {
  std::string kind;     ///< "metadata", "tensor", "padding" or "file"
  std::string name;     ///< of the tensor, or of the one that padding follows; may be empty
  std::string title;    ///< `tensor "NAME" chunks 3 to 5`
  std::string message;  ///< found V, need RULE
  std::string file;     ///< the part it is in; empty where the difference is in no one part
  /// The first chunk that differs and the last of the same run, from 0.
  std::optional<std::pair<std::size_t, std::size_t>> chunks = {};
  /// The bytes of `file` it is in, without the one at the end.
  std::optional<std::pair<std::uint64_t, std::uint64_t>> bytes = {};
};

/// What the files lack of `tree`; nothing when they are those it was made of, byte for byte. A file
/// that is no GGUF any more is compared at the places that the tree names.
Result<std::vector<GgufDifference>> compare_manifest(const MappedFile& file, const GgufTree& tree,
                                                     const Hashing& hashing);

/// The same for the GGUF at `path`, all parts of a split one. Errors also: those of
/// open_gguf_file(), unless the parts of `tree` are all there. kIntegrity when a file changes while
/// it is read.
Result<std::vector<GgufDifference>> compare_manifest(const std::string& path, const GgufTree& tree,
                                                     const Hashing& hashing);

/// kIntegrity: the first difference and the number of others. @pre !differences.empty()
Error integrity_error(const std::vector<GgufDifference>& differences);

/// "root HEX over 12 tensors, 36160 bytes": what a file that does not differ was compared with.
std::string summary(const GgufTree& tree);

}  // namespace llm
