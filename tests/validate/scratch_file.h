#ifndef LLM_TESTS_VALIDATE_SCRATCH_FILE_H_
#define LLM_TESTS_VALIDATE_SCRATCH_FILE_H_

#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace llm::test {

/// A path in a directory of its own, which goes away with everything in it.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& name = "file.npz") {
    std::string pattern = (std::filesystem::temp_directory_path() / "llm_test.XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    directory_ = pattern;
    path_ = (directory_ / name).string();
  }
  ~ScratchFile() {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  const std::string& path() const { return path_; }
  const std::filesystem::path& directory() const { return directory_; }

  void write(std::span<const std::byte> bytes) const {
    // A new file each time: some file systems flush to disk when one is truncated and rewritten.
    std::filesystem::remove(path_);
    std::ofstream out(path_, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    REQUIRE(out.flush().good());
  }

 private:
  std::filesystem::path directory_;
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

#endif  // LLM_TESTS_VALIDATE_SCRATCH_FILE_H_
