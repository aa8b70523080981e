#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/llmserve/api/answer_request.h"
#include "tools/llmserve/api/request_fields.h"

namespace llm {

// /v1/rerank: documents in the order in which they answer a query.
//
// A reranker that generates (Qwen3-Reranker) is asked whether a document meets the query, in the
// words that it was trained with; a document's score is the probability of "yes" against "no" as
// the first token: 1 / (1 + exp(no - yes)) of their logits. Source: the model card of
// Qwen/Qwen3-Reranker-0.6B. A model of embeddings gives cosines, as vLLM's score API does.

struct RerankBody : RequestBody {
  std::string query;
  std::vector<std::string> documents;
  std::optional<std::size_t> top_n;
  bool returns_documents = false;
};
JsonFields rerank_fields(const ServedModel* served, RerankBody& body);

/// Errors: kUsage naming the field (`documents`: the model is neither); kResource for a text that
/// is longer than the context.
Result<AnswerRequest> parse_rerank(const OrderedJson& body, const ServedModel& served);

}  // namespace llm
