#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "engine/engine.h"
#include "engine/prompt_cache.h"
#include "tests/fuzz/tiny_model.h"

namespace llm::fuzz {

/// Of a model with windows, for caches of cache_file_identity().
std::unique_ptr<Sequence> cache_sequence();
/// Its model's hash is all zeros, so that inputs stay right when the model is made anew.
CacheIdentity cache_file_identity();
/// A prompt cache whose header is right for that content (docs/prompt_cache.md).
std::string sealed(std::string_view content);

}  // namespace llm::fuzz
