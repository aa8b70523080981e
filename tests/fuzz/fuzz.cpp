#include "tests/fuzz/fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace llm::fuzz {

std::string_view Input::take(std::size_t size) {
  const std::string_view taken = bytes_.substr(0, size);
  bytes_.remove_prefix(taken.size());
  return taken;
}

std::uint8_t Input::byte() {
  const std::string_view one = take(1);
  return one.empty() ? 0 : static_cast<std::uint8_t>(one[0]);
}

std::string_view Input::part() {
  const std::string_view before = take(std::min(bytes_.find('\0'), bytes_.size()));
  take(1);
  return before;
}

void require(bool holds, std::string_view law, std::string_view found) {
  if (holds) return;
  std::fprintf(stderr, "LAW BROKEN: %.*s\n%.*s\n", static_cast<int>(law.size()), law.data(),
               static_cast<int>(found.size()), found.data());
  std::abort();
}

MemoryFile::MemoryFile(std::string_view content)
    : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)),
      path_("/proc/self/fd/" + std::to_string(descriptor_)) {
  require(descriptor_ >= 0, "memfd_create");
  while (!content.empty()) {
    const ssize_t n = ::write(descriptor_, content.data(), content.size());
    require(n > 0, "write to memory");
    content.remove_prefix(static_cast<std::size_t>(n));
  }
}

MemoryFile::~MemoryFile() { ::close(descriptor_); }

std::string tiny_model_path(std::string_view name) {
  return LLM_SOURCE_DIR "/tests/golden/architectures/" + std::string(name) + ".gguf";
}

}  // namespace llm::fuzz
