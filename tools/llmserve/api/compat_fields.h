#pragma once

#include <set>
#include <string>

#include "tools/llmserve/conversations/json_fields.h"

namespace llm {

/// The bodies of requests, as sets of them.
enum BodyKind : unsigned {
  kCompletionBody = 1U << 0,
  kChatBody = 1U << 1,
  kResponsesBody = 1U << 2,
  kMessagesBody = 1U << 3,
  kCountBody = 1U << 4,
  kOllamaChatBody = 1U << 5,
  kOllamaTextBody = 1U << 6,
  kOllamaOptions = 1U << 7,  ///< the object `options` of the two before
  kInfillBody = 1U << 8,
  kLlamaBody = 1U << 9,  ///< llama-server's /completion
  kEmbeddingBody = 1U << 10,
  kOllamaEmbedBody = 1U << 11,
  kRerankBody = 1U << 12,
  kTokenizeBody = 1U << 13,
};

/// Adds what clients of other servers send to that body and this server has nothing to do for:
/// fields without effect, other names of fields that are in `fields` already, and fields whose
/// values may only ask for nothing. One table has them for all bodies; a field that is in `fields`
/// stays as it is.
void add_foreign_fields(JsonFields& fields, BodyKind body);

}  // namespace llm
