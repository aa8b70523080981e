#include "tools/llmserve/api/embeddings.h"

#include <fmt/format.h>

#include <bit>
#include <boost/archive/iterators/base64_from_binary.hpp>
#include <boost/archive/iterators/transform_width.hpp>
#include <chrono>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tools/llmserve/api/answer_json.h"
#include "tools/llmserve/api/compat_fields.h"

namespace llm {
namespace {

constexpr std::size_t kMostEmbedded = std::size_t{1} << 22;  // of all embeddings of an answer

enum class Shape { kList, kBase64, kOllama, kOllamaOne };  // of an answer

class EmbeddingsWriter : public AnswerWriter {
 public:
  EmbeddingsWriter(const ServedModel& served, const AnswerRequest& request, Shape shape)
      : AnswerWriter(served, request, ""), shape_(shape) {}

  std::string whole(std::span<const GenerationOutput> texts) const override {
    if (shape_ == Shape::kOllamaOne)
      return json_text(AnswerJson{{"embedding", texts[0].embedding}}) + "\n";
    const bool is_ollama = shape_ == Shape::kOllama;
    AnswerJson list = AnswerJson::array();
    for (const GenerationOutput& text : texts) {
      AnswerJson values = shape_ == Shape::kBase64 ? AnswerJson(base64_of(text.embedding))
                                                   : AnswerJson(text.embedding);
      if (!is_ollama) {
        values = {
            {"object", "embedding"}, {"index", list.size()}, {"embedding", std::move(values)}};
      }
      list.push_back(std::move(values));
    }
    const std::size_t n_tokens = prompt_tokens();
    AnswerJson json;
    if (is_ollama) {
      const std::chrono::nanoseconds time = std::chrono::steady_clock::now() - started_;
      json = {{"model", served_.id},
              {"embeddings", std::move(list)},
              {"total_duration", time.count()},
              {"load_duration", 0},
              {"prompt_eval_count", n_tokens}};
    } else {
      json = {{"object", "list"},
              {"data", std::move(list)},
              {"model", served_.id},
              {"usage", {{"prompt_tokens", n_tokens}, {"total_tokens", n_tokens}}}};
    }
    return json_text(json) + "\n";
  }

 private:
  Shape shape_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

/// What all these bodies ask for.
Result<AnswerRequest> embeddings_of(const EmbeddingBody& body, Shape shape,
                                    const ServedModel& served) {
  const HyperParameters& config = served.model->config();
  auto pooling = served.pooling ? Result<Pooling>(*served.pooling) : pooling_of(config);
  if (!pooling.ok()) {
    Error error = std::move(pooling).error();
    error.hint = "start llmserve with --pooling mean or last";
    return error;
  }
  AnswerRequest request;
  request.notes = body.chat.notes;
  LLM_TRY(request.adapters, adapters_of(body, served));
  request.writer = [shape](const ServedModel& of, const AnswerRequest& asked) {
    return std::make_unique<EmbeddingsWriter>(of, asked, shape);
  };
  request.embedding = EmbeddingOptions{*pooling, body.dimensions.value_or(0)};
  request.options.max_tokens = 0;
  const std::size_t n = count_prompts(*body.prompt);
  LLM_RETURN_IF_ERROR(check_choices(n, 1, served, "input"));
  if (n * body.dimensions.value_or(config.d_model) > kMostEmbedded) {
    return wrong_field("input", fmt::format("{} texts", n),
                       fmt::format("at most {} values of embeddings in all", kMostEmbedded));
  }
  LLM_TRY(request.prompts,
          read_prompts(*body.prompt, served.tokenizer(), {.field = "input", .add_eos = true}));
  return request;
}

void add_embedding(JsonFields& fields, const ServedModel* served, EmbeddingBody& body,
                   bool is_needed) {
  add_model(fields, body);
  add_adapters(fields, body);
  JsonFields::Field& input =
      fields.value("input", prompts_schema(), JsonFields::keep(&body.prompt));
  if (is_needed) input.needed(std::string(kPromptNeed));
  fields.integer("dimensions", &body.dimensions, 1,
                 served == nullptr ? std::numeric_limits<std::int32_t>::max()
                                   : static_cast<std::int64_t>(served->model->config().d_model),
                 "Return this many leading values, normalized to length 1.");
}

/// Texts that are longer than the context are cut.
void cut_prompts(AnswerRequest& request, const ServedModel& served) {
  for (Prompt& prompt : request.prompts) {
    if (prompt.ids.size() <= served.context) continue;
    const VocabSpec& spec = served.tokenizer().spec();
    prompt.ids.resize(served.context);
    if (spec.add_eos && spec.eos) prompt.ids.back() = *spec.eos;
  }
}

/// For a request that embeds nothing: clients load a model by it.
AnswerRequest nothing_embedded(OrderedJson answer) {
  AnswerRequest request;
  request.at_once = std::move(answer);
  return request;
}

}  // namespace

std::string base64_of(std::span<const float> values) {
  static_assert(std::endian::native == std::endian::little);
  std::vector<char> bytes(values.size_bytes());
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  const std::size_t padding = (3 - bytes.size() % 3) % 3;
  bytes.resize(bytes.size() + padding);  // whole groups: the iterators read no others
  using namespace boost::archive::iterators;
  using Digits = base64_from_binary<transform_width<const char*, 6, 8>>;
  std::string text(Digits(bytes.data()), Digits(bytes.data() + bytes.size()));
  return text.replace(text.size() - padding, padding, padding, '=');
}

JsonFields embedding_fields(const ServedModel* served, EmbeddingBody& body) {
  JsonFields fields;
  add_embedding(fields, served, body, /*is_needed=*/true);
  fields.value(
      "encoding_format", {{"enum", {"float", "base64"}}, {"default", "float"}},
      [&body](const OrderedJson& value, const std::string& path) -> Status {
        if (value != "float" && value != "base64")
          return wrong_field(path, shown_json(value), "\"float\" or \"base64\"");
        body.as_base64 = value == "base64";
        return Ok{};
      },
      "base64: the values as little-endian 32-bit floats.");
  add_foreign_fields(fields, kEmbeddingBody);
  fields.tolerate(&body.chat.notes, effective_fields);
  return fields;
}

JsonFields ollama_embed_fields(const ServedModel* served, EmbeddingBody& body) {
  JsonFields fields;
  add_embedding(fields, served, body, /*is_needed=*/false);
  fields.flag("truncate", &body.truncate, "Truncate a text that is longer than the context.");
  add_foreign_fields(fields, kOllamaEmbedBody);
  fields.tolerate(&body.chat.notes, effective_fields);
  return fields;
}

JsonFields ollama_embedding_fields(const ServedModel*, EmbeddingBody& body) {
  JsonFields fields;
  add_model(fields, body);
  add_adapters(fields, body);
  fields.value("prompt", {{"type", "string"}}, JsonFields::keep(&body.prompt));
  fields.ignored({"options"});
  add_foreign_fields(fields, kOllamaEmbedBody);
  fields.tolerate(&body.chat.notes, effective_fields);
  return fields;
}

Result<AnswerRequest> parse_ollama_embedding(const OrderedJson& json, const ServedModel& served) {
  EmbeddingBody body;
  LLM_RETURN_IF_ERROR(ollama_embedding_fields(&served, body).read(json));
  if (body.prompt == nullptr || *body.prompt == "")
    return nothing_embedded({{"embedding", OrderedJson::array()}});
  if (!body.prompt->is_string()) return wrong_field("prompt", shown_json(*body.prompt), "a string");
  LLM_TRY(AnswerRequest request, embeddings_of(body, Shape::kOllamaOne, served));
  cut_prompts(request, served);
  LLM_RETURN_IF_ERROR(check_lengths(request, served, "prompt"));
  return request;
}

Result<AnswerRequest> parse_embeddings(const OrderedJson& json, const ServedModel& served) {
  EmbeddingBody body;
  LLM_RETURN_IF_ERROR(embedding_fields(&served, body).read(json));
  LLM_TRY(AnswerRequest request,
          embeddings_of(body, body.as_base64 ? Shape::kBase64 : Shape::kList, served));
  LLM_RETURN_IF_ERROR(check_lengths(request, served, "input"));
  return request;
}

Result<AnswerRequest> parse_ollama_embed(const OrderedJson& json, const ServedModel& served) {
  EmbeddingBody body;
  body.truncate = true;
  LLM_RETURN_IF_ERROR(ollama_embed_fields(&served, body).read(json));
  if (body.prompt == nullptr || (body.prompt->is_array() && body.prompt->empty()))
    return nothing_embedded({{"model", served.id},
                             {"embeddings", OrderedJson::array()},
                             {"total_duration", 0},
                             {"load_duration", 0},
                             {"prompt_eval_count", 0}});
  LLM_TRY(AnswerRequest request, embeddings_of(body, Shape::kOllama, served));
  if (body.truncate) cut_prompts(request, served);
  LLM_RETURN_IF_ERROR(check_lengths(request, served, "input"));
  return request;
}

}  // namespace llm
