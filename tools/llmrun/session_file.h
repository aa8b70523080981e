#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/generate/conversation.h"

namespace llm {

/// Writes a conversation as a prompt cache whose note has its messages (docs/prompt_cache.md).
/// @param with_values  keys and values too, so that they need not be computed again
/// @param held  the caller's lock of the file, which is one of the new file then; may be null
/// Errors: those of PromptCache::write().
Status save_session(const std::string& path, const Conversation& conversation, Sequence& sequence,
                    const CacheIdentity& identity, bool with_values, FileLock* held = nullptr);

/// Reads one for `sequence`, which then holds what the file has of keys and values; nothing where
/// they do not fit into its context.
/// Errors: those of PromptCache; kMalformed for a note that is no conversation; kIntegrity for one
/// with another chat template. After an error `sequence` is empty or as before.
Result<std::unique_ptr<Conversation>> load_session(const std::string& path,
                                                   std::shared_ptr<const ChatStyle> style,
                                                   Sequence& sequence,
                                                   const CacheIdentity& identity);

}  // namespace llm
