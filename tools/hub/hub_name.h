#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llm {

/// What names a model on a hub: owner/repo, owner/repo:QUANT.
struct HubName {
  std::string repo;   ///< "owner/repo"
  std::string quant;  ///< as typed; empty: the usual one

  /// Errors: kUsage for anything else.
  static Result<HubName> parse(std::string_view text);
};

/// A file of a repository.
struct HubFile {
  std::string path;  ///< inside the repository: "a.gguf", "Q8_0/a-00001-of-00002.gguf"
  std::uint64_t size = 0;
  std::string sha256 = {};  ///< 64 hex digits; empty where the hub promises none

  bool operator==(const HubFile&) const = default;
};

/// The file of `name` among those of its repository, all its parts in order where it is split.
/// `name.quant` is a file's path or a word of its path between characters other than letters and
/// digits (no "_" may follow: Q4_K is not Q4_K_M), in upper or lower case; without it Q4_K_M, else
/// the first model by path. Projectors (mmproj) and importance matrices are no models.
/// Errors: kUsage naming what there is; kMalformed where a part is missing.
Result<std::vector<HubFile>> choose_hub_files(const HubName& name, std::span<const HubFile> files);

/// Whether `path` may be created under a folder: relative, without "." and ".." and without
/// control characters.
bool is_safe_hub_path(std::string_view path);

}  // namespace llm
