#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/sha256.h"
#include "engine/gguf/gguf_writer.h"
#include "tools/common/progress.h"
#include "tools/llmgguf/commands.h"

namespace llm {

/// What a written tensor has instead of the source's type and bytes.
struct NewTensor {
  WeightType type;
  std::function<Result<std::vector<std::byte>>()> data;  ///< called once, when it is written
};

/// A file that is written from another GGUF: entries, then tensors.
struct GgufOutput {
  std::deque<GgufEntry> entries;
  std::span<const GgufTensor> tensors;
  /// Of a tensor that changes; nothing: it is copied. May be empty: all are.
  std::function<std::optional<NewTensor>(const GgufTensor&)> change = {};
};

/// A written file that is not yet under its name.
struct WrittenFile {
  AtomicFile file;
  std::string path;
  std::uint64_t bytes = 0;
  std::string sha256;

  /// "PATH: N bytes, SHA-256 HEX".
  std::string text() const;
};

/// Writes `out`, made of `source`, to a temporary file of `path`. @pre check_new_output()
/// Errors: those of the writer and of `out.change`; kIo; kIntegrity where the source changes.
Result<WrittenFile> write_gguf(const OpenGguf& source, const GgufOutput& out,
                               const std::string& path, ProgressBar& progress);

/// Errors: kUsage where `path` is a file of the source, or one that exists while `force` is not
/// set; kIo where it cannot be written. @param what  names `path`
Status check_new_output(const std::string& what, const std::string& path, const OpenGguf& source,
                        bool force);

}  // namespace llm
