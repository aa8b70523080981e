// Heads of files of the cache: what stands before a right hash is still not believed.

#include "engine/state/state_file.h"
#include "tests/fuzz/fuzz.h"

LLM_FUZZ(input) {
  using namespace llm;
  const bool is_sealed = (input.byte() & 1) == 0;
  std::string content(input.rest());
  if (is_sealed) {
    Sha256 hash;
    hash.update(fuzz::bytes_of(content));
    const Sha256Digest digest = hash.digest();
    content.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  }
  for (const std::uint64_t size : {content.size(), content.size() + 784}) {
    const auto head = parse_state_head(fuzz::bytes_of(content), size);
    if (!head.ok()) continue;
    fuzz::require(head->file_bytes() == size, "a file has the size that its head says");
    fuzz::require(head->first <= head->tokens.size(), "rows begin within the page");
  }
}
