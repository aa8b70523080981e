#pragma once

#include <stdlib.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

#include "tests/support/catch.h"

namespace llm::test {

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Writes one byte of a file in place.
inline void overwrite(const std::string& path, std::size_t at, char value) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(at));
  REQUIRE(file.put(value).flush().good());
}

/// A fresh directory, removed with everything in it.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "llm_test.XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all, ignored);
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  /// The path of what is called `name` in it; its own for "".
  std::string path(std::string_view name = "") const {
    return name.empty() ? path_.string() : (path_ / name).string();
  }
  std::string operator/(std::string_view name) const { return path(name); }

  /// Writes a file and returns its path. A new file each time: some file systems flush to disk when
  /// one is truncated and rewritten.
  std::string write(std::string_view name, std::string_view content) const {
    const std::string file = *this / name;
    std::filesystem::remove(file);
    std::ofstream out(file, std::ios::binary);
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
    REQUIRE(out.flush().good());
    return file;
  }
  std::string write(std::string_view name, std::span<const std::byte> bytes) const {
    return write(name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }

  std::string read(std::string_view name) const { return read_file(*this / name); }

  std::size_t count() const {
    const std::filesystem::directory_iterator files(path_);
    return static_cast<std::size_t>(std::distance(begin(files), end(files)));
  }

 private:
  std::filesystem::path path_;
};

}  // namespace llm::test
