#pragma once

#include <optional>
#include <span>
#include <string>

#include "tools/llmserve/api/answer_request.h"
#include "tools/llmserve/api/request_fields.h"

namespace llm {

// /v1/embeddings, and Ollama's /api/embed: texts of which nothing is drawn.

struct EmbeddingBody : RequestBody {
  std::optional<std::size_t> dimensions;
  bool as_base64 = false;
  bool truncate = false;
};
JsonFields embedding_fields(const ServedModel* served, EmbeddingBody& body);
JsonFields ollama_embed_fields(const ServedModel* served, EmbeddingBody& body);
JsonFields ollama_embedding_fields(const ServedModel* served, EmbeddingBody& body);

/// Errors: kUsage naming the field, or the file's key where its pooling is not computed here;
/// kResource for an input longer than the context.
Result<AnswerRequest> parse_embeddings(const OrderedJson& body, const ServedModel& served);
Result<AnswerRequest> parse_ollama_embed(const OrderedJson& body, const ServedModel& served);
/// Its older /api/embeddings: one text.
Result<AnswerRequest> parse_ollama_embedding(const OrderedJson& body, const ServedModel& served);

/// RFC 4648, of the values as little-endian f32.
std::string base64_of(std::span<const float> values);

}  // namespace llm
