#include "tools/llmserve/api/rerank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tools/llmserve/api/answer_json.h"
#include "tools/llmserve/api/compat_fields.h"

namespace llm {
namespace {

constexpr std::uint64_t kRankPooling = 4;  // llama.cpp's enum llama_pooling_type
constexpr const char* kUsualTask =
    "Given a web search query, retrieve relevant passages that answer the query";

bool is_generative(const ServedModel& served) {
  if (served.model->config().pooling_type == kRankPooling) return true;
  std::string name = served.model->name() + " " + served.id;
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name.find("rerank") != std::string::npos;
}

/// The token that a word is by itself. Errors: kUsage where it is several.
Result<TokenId> token_of(const Tokenizer& tokenizer, const std::string& word) {
  const auto ids =
      tokenizer.encode(word, {.add_bos = false, .add_eos = false, .add_space_prefix = false});
  if (ids.size() == 1) return ids[0];
  return usage_error(
      "query",
      fmt::format("found a vocabulary in which \"{}\" is not a token, need that of a reranker",
                  word));
}

/// Documents to be put in order.
struct RerankRequest {
  std::vector<std::string> documents;
  std::size_t top_n;  ///< the first ones that are told
  bool returns_documents;
  TokenId yes = 0;  ///< of a reranker that generates
  TokenId no = 0;
};

class RerankWriter : public AnswerWriter {
 public:
  /// @param rerank  outlives it
  RerankWriter(const ServedModel& served, const AnswerRequest& request, const RerankRequest& rerank)
      : AnswerWriter(served, request, "rerank-"), rerank_(rerank) {}

  std::string whole(std::span<const GenerationOutput> texts) const override {
    std::vector<double> scores;
    for (std::size_t i = 0; i < rerank_.documents.size(); ++i)
      scores.push_back(request_.embedding ? cosine(texts[0], texts[i + 1]) : yes_of(texts[i]));
    std::vector<std::size_t> order(scores.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order,
                             [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
    order.resize(std::min(order.size(), rerank_.top_n));
    AnswerJson results = AnswerJson::array();
    for (const std::size_t i : order) {
      AnswerJson result = {{"index", i}, {"relevance_score", scores[i]}};
      if (rerank_.returns_documents) result["document"] = {{"text", rerank_.documents[i]}};
      results.push_back(std::move(result));
    }
    const std::size_t n = prompt_tokens();
    return json_text(AnswerJson{{"id", id_},
                                {"object", "list"},
                                {"model", served_.id},
                                {"results", std::move(results)},
                                {"usage", {{"prompt_tokens", n}, {"total_tokens", n}}}}) +
           "\n";
  }

 private:
  /// Of vectors of length 1.
  static double cosine(const GenerationOutput& a, const GenerationOutput& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.embedding.size(); ++i)
      sum += static_cast<double>(a.embedding[i]) * static_cast<double>(b.embedding[i]);
    return sum;
  }
  double yes_of(const GenerationOutput& text) const {
    const Logprobs& row =
        text.result.logprobs.empty() ? *text.end_logprobs : text.result.logprobs.front();
    const auto logprob = [&row](TokenId id) {
      return std::ranges::find(row.top, id, &TokenLogprob::id)->logprob;
    };
    return 1 / (1 + std::exp(logprob(rerank_.no) - logprob(rerank_.yes)));
  }

  const RerankRequest& rerank_;
};

Status read_documents(const OrderedJson& list, const std::string& path,
                      std::vector<std::string>& documents) {
  if (!list.is_array() || list.empty())
    return wrong_field(path, shown_json(list), "an array of texts");
  for (std::size_t i = 0; i < list.size(); ++i) {
    const OrderedJson text = list[i].is_object() ? list[i].value("text", OrderedJson()) : list[i];
    if (!text.is_string()) return wrong_field(at_index(path, i), shown_json(list[i]), "a text");
    documents.push_back(text.get<std::string>());
  }
  return Ok{};
}

/// The question of Qwen3-Reranker's card.
std::vector<ChatPart> question(const RerankBody& body, const std::string& document) {
  const auto markup = [](std::string text) { return ChatPart{std::move(text), true}; };
  const auto content = [](std::string text) { return ChatPart{std::move(text), false}; };
  return {
      markup("<|im_start|>system\nJudge whether the Document meets the requirements based on the "
             "Query and the Instruct provided. Note that the answer can only be \"yes\" or "
             "\"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: "),
      content(body.instructions.empty() ? kUsualTask : body.instructions),
      markup("\n<Query>: "),
      content(body.query),
      markup("\n<Document>: "),
      content(document),
      markup("<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")};
}

}  // namespace

JsonFields rerank_fields(const ServedModel*, RerankBody& body) {
  JsonFields fields;
  add_model(fields, body);
  add_adapters(fields, body);
  fields.text("query", &body.query, "The query that the documents may answer.").needed("a text");
  fields.value(
      "documents", array_of({{"type", {"string", "object"}}}, true),
      [&body](const OrderedJson& value, const std::string& path) {
        return read_documents(value, path, body.documents);
      },
      "Texts, or objects with a text.");
  fields.spelling("texts", "documents");
  fields.integer("top_n", &body.top_n, 1, INT32_MAX, "Number of best results to return.");
  fields.flag("return_documents", &body.returns_documents, "Include the texts in the results.");
  fields.text("instruction", &body.instructions,
              "The task, for rerankers that use an instruction.");
  fields.spelling("instruct", "instruction");
  add_foreign_fields(fields, kRerankBody);
  fields.tolerate(&body.chat.notes, effective_fields);
  return fields;
}

Result<AnswerRequest> parse_rerank(const OrderedJson& json, const ServedModel& served) {
  RerankBody body;
  LLM_RETURN_IF_ERROR(rerank_fields(&served, body).read(json));
  if (body.documents.empty()) return wrong_field("documents", "nothing", "an array of texts");
  LLM_RETURN_IF_ERROR(check_choices(body.documents.size() + 1, 1, served, "documents"));
  AnswerRequest request;
  request.notes = body.chat.notes;
  LLM_TRY(request.adapters, adapters_of(body, served));
  request.options.max_tokens = 0;
  RerankRequest rerank{.documents = std::move(body.documents),
                       .top_n = body.top_n.value_or(SIZE_MAX),
                       .returns_documents = body.returns_documents};
  const HyperParameters& config = served.model->config();
  if (served.style && is_generative(served)) {
    LLM_TRY(rerank.yes, token_of(served.tokenizer(), "yes"));
    LLM_TRY(rerank.no, token_of(served.tokenizer(), "no"));
    for (const std::string& document : rerank.documents) {
      LLM_TRY(auto ids, served.style->encode(question(body, document), true));
      request.prompts.push_back({.ids = std::move(ids), .text = std::nullopt, .system = ""});
    }
    request.options.max_tokens = 1;
    request.options.sampler.temperature = 0;
    request.options.logprobs = config.n_vocab;
  } else if (served.pooling || config.pooling_type != 0) {
    LLM_TRY(const Pooling pooling,
            served.pooling ? Result<Pooling>(*served.pooling) : pooling_of(config));
    request.embedding = EmbeddingOptions{pooling, 0};
    OrderedJson texts = OrderedJson::array({body.query});
    for (const std::string& document : rerank.documents) texts.push_back(document);
    LLM_TRY(request.prompts,
            read_prompts(texts, served.tokenizer(), {.field = "documents", .add_eos = true}));
  } else {
    return usage_error("documents",
                       "found a model that neither reranks nor embeds, need one of them",
                       "start llmserve with --pooling mean or last to compare embeddings");
  }
  LLM_RETURN_IF_ERROR(check_lengths(request, served, "documents"));
  request.writer = [rerank = std::move(rerank)](const ServedModel& of, const AnswerRequest& asked) {
    return std::make_unique<RerankWriter>(of, asked, rerank);
  };
  return request;
}

}  // namespace llm
