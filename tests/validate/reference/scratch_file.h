#pragma once

#include "tests/support/test.h"

namespace llm::test {

/// A path in a directory of its own, which goes away with everything in it.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& name = "file.npz") {
    name_ = name;
    path_ = directory_ / name;
  }

  const std::string& path() const { return path_; }
  std::filesystem::path directory() const { return directory_.path(); }

  void write(std::span<const std::byte> bytes) const { directory_.write(name_, bytes); }

 private:
  ScratchDirectory directory_;
  std::string name_;
  std::string path_;
};

inline std::vector<std::byte> read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  REQUIRE(in.good());
  const std::vector<char> chars{std::istreambuf_iterator<char>(in), {}};
  const auto bytes = std::as_bytes(std::span(chars));
  return {bytes.begin(), bytes.end()};
}

}  // namespace llm::test
