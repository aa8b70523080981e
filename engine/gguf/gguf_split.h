#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/mapped_file.h"
#include "base/result.h"
#include "engine/gguf/gguf_file.h"

namespace llm {

/// A model in several files, NAME-00001-of-00003.gguf and so on. Source: llama.cpp's gguf-split.
/// The first part has all metadata; every part has these keys and tensors of its own.
inline constexpr std::string_view kSplitNo = "split.no";                  ///< from 0
inline constexpr std::string_view kSplitCount = "split.count";            ///< parts
inline constexpr std::string_view kSplitTensors = "split.tensors.count";  ///< of all parts

/// NAME-00002-of-00003.gguf. @param index  from 0
std::string split_path(std::string_view name, std::uint64_t index, std::uint64_t count);

/// What the name of a part says.
struct SplitPath {
  std::string_view name;  ///< of all parts; into the parsed path
  std::uint64_t index;    ///< from 0
  std::uint64_t count;
};
/// The opposite of split_path(); nothing for any other path.
std::optional<SplitPath> parse_split_path(std::string_view path);

/// A GGUF on disk, mapped and parsed.
struct OpenGguf {
  MappedFile file;
  GgufFile gguf;
};

/// Opens the GGUF at `path`. Of a split model any part may be named: all parts are found beside it
/// and joined, so that the result is that of the whole file but for where its tensors lie; the keys
/// above are gone.
///
/// Errors: those of MappedFile and GgufFile, naming the part; kUnsupported for a missing part or a
/// part under another name; kMalformed for parts that contradict each other (number, count, keys
/// that the first part has not or has otherwise, tensors twice or not as many as promised).
/// Cost: as GgufFile::parse, per part.
Result<OpenGguf> open_gguf_file(const std::string& path);

}  // namespace llm
