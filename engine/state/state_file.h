#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/state/prefix.h"

namespace llm {

/// What a file keeps of a page (docs/cache.md): keys and values of its positions [first,
/// tokens.size()) in each group of layers, and states behind the last of them.
struct StateHead {
  /// Bytes of a group, and their SHA-256. Of states none where the file has none.
  struct Section {
    std::uint64_t n_bytes = 0;
    Sha256Digest sha256 = {};
  };

  Prefix parent = {};             ///< of the tokens before the page, and of all else they depend on
  std::uint32_t page = 0;         ///< its number in the sequence
  std::uint32_t first = 0;        ///< in the page
  std::vector<TokenId> tokens;    ///< of the page, from its first position on
  std::vector<Section> sections;  ///< of each group

  /// A name that no other contents have.
  std::string file_name() const;
  std::uint64_t file_bytes() const;
};

inline constexpr std::string_view kStateSuffix = ".kv";

/// Writes a file in one step. @param sections  of each group; sets the head's sections. Errors:
/// kIo.
Status write_state_file(const std::string& path, StateHead& head,
                        std::span<const std::vector<std::byte>> sections);

/// What the first bytes of a file say. Errors: as read_state_head(). @param file_bytes  its size
Result<StateHead> parse_state_head(std::span<const std::byte> bytes, std::uint64_t file_bytes);

/// Errors: kMalformed for what is no such file, damaged or cut; kUnsupported for another version of
/// the format; kIntegrity for one that others may have written; kIo. Cost: reads the head alone.
Result<StateHead> read_state_head(const std::string& path);

/// The bytes of some groups. @param wanted  of each group; others come back empty
/// Errors: as read_state_head(); kMalformed where the file is not the one of `head`, or a section
/// is not what its hash says.
Result<std::vector<std::vector<std::byte>>> read_state_sections(const std::string& path,
                                                                const StateHead& head,
                                                                const std::vector<bool>& wanted);

}  // namespace llm
