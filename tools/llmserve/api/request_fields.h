#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/batching/generation_service.h"
#include "tools/llmserve/api/prompts.h"
#include "tools/llmserve/api/served_model.h"
#include "tools/llmserve/api/structure_fields.h"
#include "tools/llmserve/conversations/conversations.h"
#include "tools/llmserve/conversations/json_fields.h"

namespace llm {

/// What the body of a request says, as it stands there. Each kind of body has some of these; what
/// only one endpoint reads is in a struct of its own that derives from this.
struct RequestBody {
  GenerateOptions options;
  std::int64_t seed = -1;  ///< negative: random
  std::size_t n = 1;
  std::optional<std::size_t> max_tokens;  ///< a bound; none: the body's usual one
  bool stream = false;
  bool include_usage = false;
  bool has_stream_options = false;
  bool logits_hash = false;
  bool receipt = false;
  bool timings = false;
  bool progress = false;
  std::string model;                      ///< as the client calls it
  const OrderedJson* lora = nullptr;      ///< a list
  std::vector<StructureField> structure;  ///< what the text must be

  const OrderedJson* prompt = nullptr;
  bool echo = false;
  bool parse_special = false;
  std::string suffix;

  RequestedChat chat;
  bool wants_logprobs = false;
  std::optional<std::size_t> top_logprobs;
  std::optional<std::size_t> max_completion_tokens;
  std::string instructions;

  Gap gap;
  std::string more;  ///< what was written after the gap's beginning
  bool is_raw = false;
  bool continue_final = false;
  bool add_generation_prompt = true;

  bool add_special = true;
  std::vector<TokenId> tokens;
};

// The tables of the bodies, which read one and describe it (/openapi.json). `body` outlives
// them. @param served  null: they only describe
JsonFields completion_fields(const ServedModel* served, RequestBody& body);
JsonFields chat_fields(const ServedModel* served, RequestBody& body);
JsonFields responses_fields(const ServedModel* served, RequestBody& body);
JsonFields messages_fields(const ServedModel* served, RequestBody& body);
JsonFields ollama_chat_fields(const ServedModel* served, RequestBody& body);
JsonFields ollama_text_fields(const ServedModel* served, RequestBody& body);
/// The object `options` of Ollama's bodies.
JsonFields ollama_options(RequestBody& body);
JsonFields count_fields(const ServedModel* served, RequestBody& body);
JsonFields infill_fields(const ServedModel* served, RequestBody& body);
JsonFields llama_fields(const ServedModel* served, RequestBody& body);
JsonFields template_fields(const ServedModel* served, RequestBody& body);
JsonFields show_fields(const ServedModel* served, RequestBody& body);
JsonFields tokenize_fields(const ServedModel* served, RequestBody& body);
JsonFields detokenize_fields(const ServedModel* served, RequestBody& body);
JsonFields adapter_fields(const ServedModel* served, RequestBody& body);

/// Calls `use` with a table that only describes.
template <auto kFields>
void describe_fields(const std::function<void(const JsonFields&)>& use) {
  [&use]<typename Body>(JsonFields (*fields)(const ServedModel*, Body&)) {
    Body body;
    use(fields(nullptr, body));
  }(kFields);
}

/// The names of fields that have an effect, in whatever body.
const std::set<std::string>& effective_fields();

/// The field "model", which every body has.
void add_model(JsonFields& fields, RequestBody& body);
/// The field "lora", of all that compute something.
void add_adapters(JsonFields& fields, RequestBody& body);
/// A text, token ids, or an array of either.
JsonSchema prompts_schema();

}  // namespace llm
