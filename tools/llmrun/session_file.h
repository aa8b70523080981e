#pragma once

#include <memory>
#include <string>

#include "base/file_lock.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/generation/conversation.h"

namespace llm {

/// Writes a conversation as JSON (docs/chat.md), in one step.
/// @param sequence  of the conversation's model
/// @param held  the caller's lock of the file, which is one of the new file then; may be null
/// Errors: kIo.
Status save_session(const std::string& path, const Conversation& conversation,
                    const Sequence& sequence, FileLock* held = nullptr);

/// Reads one for `sequence`, which then holds what is stored of its text.
/// Errors: kIo; kMalformed for a file that is no conversation; kUnsupported for another version of
/// it; kIntegrity for one with another model or chat template. After an error `sequence` is as
/// before, or empty.
Result<std::unique_ptr<Conversation>> load_session(const std::string& path,
                                                   std::shared_ptr<const ChatStyle> style,
                                                   Sequence& sequence);

/// A conversation that goes on from `state` in `sequence`, which then holds what is stored of its
/// text. Errors: those of Conversation::restore(); `sequence` is empty then.
Result<std::unique_ptr<Conversation>> open_conversation(Conversation::State state,
                                                        std::shared_ptr<const ChatStyle> style,
                                                        Sequence& sequence);

}  // namespace llm
