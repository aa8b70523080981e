// Prompt caches: what stands behind a right hash is still not believed.

#include "engine/prompt_cache.h"
#include "tests/fuzz/cache_file.h"

LLM_FUZZ(input) {
  using namespace llm;
  static auto sequence = fuzz::cache_sequence();
  sequence->truncate(0);
  const bool is_sealed = (input.byte() & 1) == 0;
  const std::string content(input.rest());
  const fuzz::MemoryFile file(is_sealed ? fuzz::sealed(content) : content);
  const auto cache = PromptCache::open(file.path());
  if (!cache.ok() || !cache->check(fuzz::cache_file_identity()).ok()) return;
  if (!cache->restore(*sequence).ok()) return;
  fuzz::require(sequence->position() == cache->stored(), "what is restored is there");
  (void)sequence->evaluate(std::vector<TokenId>{5}, LogitRows::kLast);
}
