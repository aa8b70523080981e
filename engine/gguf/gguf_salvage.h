#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "engine/gguf/gguf_split.h"

namespace llm {

/// What is wrong with where a file says that its tensors lie.
struct LayoutFault {
  std::string where;  ///< a tensor or general.alignment
  std::string what;   ///< found V, need RULE
  std::string mend;   ///< how a copy differs
};

/// A file that breaks the format in its layout alone, and whose tensors' bytes are all known.
struct SalvagedGguf {
  OpenGguf open;  ///< tensors lie inside the file, at any offset; some may be the same bytes
  std::vector<LayoutFault> faults;
};

/// Reads the GGUF at `path` where GgufFile::parse() refuses its alignment or its tensors' offsets:
/// an alignment of another type, or one that is none; offsets that are no multiples of it; tensors
/// that share their bytes. Offsets under which tensors overlap in part, or leave the file, are
/// replaced where one order without gaps explains every byte of the data section.
/// Errors: those of GgufFile::parse() for anything else; kMalformed where bytes stay unknown, and
/// for a part of a split model.
/// Cost: as GgufFile::parse(), and the bytes between tensors.
Result<SalvagedGguf> salvage_gguf_file(const std::string& path);

}  // namespace llm
