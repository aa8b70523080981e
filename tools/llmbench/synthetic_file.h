#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/result.h"
#include "tools/llmsynth/synthetic_model.h"

namespace llm {

/// A file in $TMPDIR (or /tmp) that has no name: the system frees it when the process ends, however
/// it ends. Move-only.
class NamelessFile {
 public:
  /// Errors: kIo with the system's words.
  static Result<NamelessFile> create();

  NamelessFile(NamelessFile&& other) noexcept;
  NamelessFile& operator=(NamelessFile&&) = delete;
  ~NamelessFile();

  /// Appends. Errors: kIo.
  Status write(std::span<const std::byte> bytes);
  /// A path that opens the file while this object lives.
  std::string path() const;

 private:
  NamelessFile() = default;

  std::string directory_;
  int descriptor_ = -1;
};

/// Makes the model in a nameless file.
Result<NamelessFile> make_synthetic_file(const SyntheticOptions& options);

}  // namespace llm
