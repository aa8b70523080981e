#include "tests/fuzz/cache_file.h"

#include "base/sha256.h"

namespace llm::fuzz {

std::unique_ptr<Sequence> cache_sequence() {
  return must(open_sequence(tiny_model("gemma3"), {.context = 64, .batch = 16}));
}

CacheIdentity cache_file_identity() { return {.model_sha256 = std::string(64, '0')}; }

std::string sealed(std::string_view content) {
  constexpr std::uint32_t kVersion = 2;
  std::string file = "LLMCACHE";
  const std::uint64_t size = 8 + sizeof kVersion + sizeof size + 64 + content.size();
  file.append(reinterpret_cast<const char*>(&kVersion), sizeof kVersion);
  file.append(reinterpret_cast<const char*>(&size), sizeof size);
  file += sha256_hex(bytes_of(content));
  return file.append(content);
}

}  // namespace llm::fuzz
