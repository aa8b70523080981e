#pragma once

#include "base/mapped_file.h"
#include "engine/gguf/gguf_file.h"
#include "tests/support/require_ok.h"

namespace llm::test {

/// A GGUF that can be opened.
class OpenGguf {
 public:
  explicit OpenGguf(const std::string& path)
      : file_(require_ok(MappedFile::open(path))),
        gguf_(require_ok(GgufFile::parse(file_.bytes()))) {}

  const GgufFile* operator->() const { return &gguf_; }
  WeightType type(std::string_view name) const { return gguf_.find_tensor(name)->type; }

 private:
  MappedFile file_;
  GgufFile gguf_;
};

}  // namespace llm::test
