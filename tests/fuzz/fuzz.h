#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace llm::fuzz {

/// What libFuzzer made, taken from the front. Reading past the end gives zeros and empty texts, so
/// every input means something.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size)
      : bytes_(reinterpret_cast<const char*>(data), size) {}

  std::uint8_t byte();
  /// At most `size` bytes.
  std::string_view take(std::size_t size);
  /// A text whose length, at most 255, is the byte before it.
  std::string_view text() { return take(byte()); }
  /// All up to the next NUL, which is taken, too.
  std::string_view part();
  std::string_view rest() { return take(bytes_.size()); }
  bool empty() const { return bytes_.empty(); }
  std::size_t size() const { return bytes_.size(); }

 private:
  std::string_view bytes_;
};

/// Ends the process, as a crash does, where a law does not hold.
void require(bool holds, std::string_view law, std::string_view found = "");

/// The value of what cannot fail here: files of the repository, and what was made from them.
template <typename T>
T must(Result<T> result) {
  if (!result.ok()) require(false, "set-up", result.error().to_string());
  return std::move(result).value();
}

/// A file that never was on a disk.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view content);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  int descriptor_;
  std::string path_;
};

/// A model of tests/golden/architectures: a few layers of a few dims.
std::string tiny_model_path(std::string_view name);

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace llm::fuzz

/// LLM_FUZZ(input) { ... }: what the target does with an input.
#define LLM_FUZZ(input)                                                               \
  static void run_input(llm::fuzz::Input input);                                      \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) { \
    run_input({data, size});                                                          \
    return 0;                                                                         \
  }                                                                                   \
  static void run_input(llm::fuzz::Input input)
