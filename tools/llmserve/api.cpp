#include "tools/llmserve/api.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <ctime>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tools/llmserve/api/embeddings.h"
#include "tools/llmserve/api/fields_page.h"
#include "tools/llmserve/api/ollama_exchange.h"
#include "tools/llmserve/api/rerank.h"

namespace llm {
namespace {

constexpr std::string_view kOptions = "OPTIONS";

/// What the server's thread does with an answer that is there.
std::function<void(const std::shared_ptr<HttpExchange>&)> answer_with(HttpAnswer answer) {
  return [kept = std::make_shared<HttpAnswer>(std::move(answer))](
             const std::shared_ptr<HttpExchange>& exchange) { exchange->answer(std::move(*kept)); };
}

/// Whether a body may be read as JSON: by its type, with parameters or without; or by no type, or
/// that which curl -d writes, of a program. A page of another site can have neither read: its
/// browser names its site (Origin), and a form's text is no JSON when it is encoded.
bool may_be_json(const HttpRequest& head) {
  std::string_view type = head.content_type;
  type = type.substr(0, type.find(';'));
  type = type.substr(0, type.find_last_not_of(" \t") + 1);
  const auto is = [type](const char* name) { return boost::beast::iequals(type, name); };
  if (is("application/json")) return true;
  return head.origin.empty() && (type.empty() || is("application/x-www-form-urlencoded"));
}

constexpr Operation post(std::string_view path, const char* id, const char* summary,
                         Operation::Body body) {
  return {"POST", path, true, id, summary, body};
}
constexpr Operation get(std::string_view path, const char* id, const char* summary,
                        bool needs_key = true, bool asks_model = false) {
  return {"GET", path, needs_key, id, summary, {}, asks_model};
}

std::string log_line(const HttpRequest& request, const HttpOutcome& outcome) {
  const std::string method = request.method.empty() ? "-" : request.method;
  const std::string path = request.path.empty() ? "-" : request.path;
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ} {} {} {} {} {} B {:.1f} ms{}",
                     fmt::gmtime(std::time(nullptr)), request.client, method, path, outcome.status,
                     outcome.sent_bytes, outcome.seconds * 1e3,
                     outcome.note.empty() ? "" : " " + outcome.note);
}

}  // namespace

Api::Api(ModelManager& manager, AccessControl gate, ReceiptLogFile* receipts, bool cache_by_key)
    : manager_(manager),
      access_(std::move(gate)),
      context_{.workers = workers_,
               .post = {},
               .on_done = [this](const std::shared_ptr<Answer>& answer) { answers_.erase(answer); },
               .receipts = receipts,
               .cache_by_key = cache_by_key},
      workers_([this](WorkerPool::Then then) { server_->post(std::move(then)); }) {}

Status Api::start() { return workers_.start(); }

void Api::attach(HttpServer& server) {
  server_ = &server;
  context_.post = [&server](std::function<void()> function) { server.post(std::move(function)); };
  manager_.attach(context_.post);
}

HttpHandlers Api::handlers(std::function<void(const std::string&)> log,
                           std::function<void(const std::string&)> fault) {
  log_ = log;
  return {
      .refuse = [this](const HttpRequest& head) { return refuse(head); },
      .handle = [this](const std::shared_ptr<HttpExchange>& exchange) { handle(exchange); },
      .error = [](int status, const std::string& message) { return error_answer(status, message); },
      .log =
          [this, log = std::move(log)](const HttpRequest& request, const HttpOutcome& outcome) {
            ++figures_.answers[outcome.status];
            log(log_line(request, outcome));
          },
      .fault = std::move(fault),
      .headers = [this](const HttpRequest& request) { return access_.headers(request); }};
}

std::span<const Api::Route> Api::routes() {
  static constexpr Route kRoutes[] = {
      {post("/v1/completions", "createCompletion", "Continue a prompt",
            {"CompletionRequest", describe_fields<completion_fields>}),
       &Api::answer_texts<parse_completion>},
      {post("/v1/chat/completions", "createChatCompletion", "Reply to a conversation",
            {"ChatRequest", describe_fields<chat_fields>}),
       &Api::answer_texts<parse_chat>},
      {post("/v1/responses", "createResponse",
            "Reply to a conversation, in the format of OpenAI's newer API",
            {"ResponsesRequest", describe_fields<responses_fields>}),
       &Api::answer_texts<parse_responses>},
      {post("/v1/messages", "createMessage",
            "Reply to a conversation, in the format of Anthropic's API",
            {"MessagesRequest", describe_fields<messages_fields>}),
       &Api::answer_texts<parse_messages>},
      {post("/v1/messages/count_tokens", "countTokens", "Count the tokens of a conversation",
            {"CountRequest", describe_fields<count_fields>}),
       &Api::answer_facts<count_answer>},
      {post("/v1/embeddings", "createEmbedding", "The embeddings of texts",
            {"EmbeddingRequest", describe_fields<embedding_fields>}),
       &Api::answer_texts<parse_embeddings>},
      {post("/api/embed", "ollamaEmbed", "The embeddings of texts, in the format of Ollama's API",
            {"OllamaEmbedRequest", describe_fields<ollama_embed_fields>}),
       &Api::answer_texts<parse_ollama_embed>},
      {post("/api/chat", "ollamaChat", "Reply to a conversation, in the format of Ollama's API",
            {"OllamaChatRequest", describe_fields<ollama_chat_fields>}),
       &Api::answer_texts<parse_ollama_chat>},
      {post("/api/generate", "ollamaGenerate",
            "Reply to one message, in the format of Ollama's API",
            {"OllamaGenerateRequest", describe_fields<ollama_text_fields>}),
       &Api::answer_texts<parse_ollama_text>},
      {post("/api/embeddings", "ollamaEmbeddings",
            "The embedding of a text, in the format of Ollama's older API",
            {"OllamaEmbeddingsRequest", describe_fields<ollama_embedding_fields>}),
       &Api::answer_texts<parse_ollama_embedding>},
      {post("/api/show", "ollamaShow", "Properties of a model, in the format of Ollama's API",
            {"OllamaShowRequest", describe_fields<show_fields>}),
       &Api::answer_facts<show_answer>},
      {get("/api/ps", "ollamaPs", "The loaded models, in the format of Ollama's API"),
       &Api::ollama_ps},
      {get("/api/tags", "ollamaTags", "The models, in the format of Ollama's API"),
       &Api::ollama_tags},
      {get("/api/version", "ollamaVersion", "The version"), &Api::ollama_version},
      {post("/infill", "infill", "Fill in the middle",
            {"InfillRequest", describe_fields<infill_fields>}),
       &Api::answer_texts<parse_infill>},
      {post("/completion", "llamaCompletion",
            "Continue a prompt, in the format of llama-server's API",
            {"LlamaCompletionRequest", describe_fields<llama_fields>}),
       &Api::answer_texts<parse_llama>},
      {post("/completions", "llamaCompletions", "The same",
            {"LlamaCompletionRequest", describe_fields<llama_fields>}),
       &Api::answer_texts<parse_llama>},
      {post("/apply-template", "applyTemplate", "Apply the chat template to a conversation",
            {"ApplyTemplateRequest", describe_fields<template_fields>}),
       &Api::answer_facts<template_answer>},
      {post("/v1/rerank", "rerank", "Sort documents by how well they answer a query",
            {"RerankRequest", describe_fields<rerank_fields>}),
       &Api::answer_texts<parse_rerank>},
      {get("/slots", "slots", "The slots, in the format of llama-server's API", /*needs_key=*/true,
           /*asks_model=*/true),
       &Api::slots},
      {get("/lora-adapters", "loraAdapters", "The adapters, in the format of llama-server's API",
           /*needs_key=*/true, /*asks_model=*/true),
       &Api::lora_adapters},
      {post("/lora-adapters", "setLoraAdapters",
            "Set the scales of adapters for requests that do not choose any; the list alone, as "
            "llama-server takes it, is accepted, too",
            {"LoraAdaptersRequest", describe_fields<adapter_fields>}),
       &Api::answer_facts<adapters_answer>},
      {get("/v1/models", "listModels", "The models, each under all of its names"),
       &Api::list_models},
      {get("/v1/models/{model}", "retrieveModel", "A model"), &Api::show_model},
      {post("/tokenize", "tokenize", "Tokenize a text or a conversation",
            {"TokenizeRequest", describe_fields<tokenize_fields>}),
       &Api::answer_facts<tokenize_answer>},
      {post("/detokenize", "detokenize", "Convert token ids to text",
            {"DetokenizeRequest", describe_fields<detokenize_fields>}),
       &Api::answer_facts<detokenize_answer>},
      {get("/tokenizer_info", "tokenizerInfo", "Properties of the tokenizer, for lm-eval",
           /*needs_key=*/true, /*asks_model=*/true),
       &Api::tokenizer_info},
      {get("/", "page", "A chat page", /*needs_key=*/false), &Api::page},
      {get("/page/{file}", "pageFile", "A file of the chat page", /*needs_key=*/false), &Api::page},
      {get("/openapi.json", "openapi", "This description", /*needs_key=*/false), &Api::openapi},
      {get("/health", "health", "Whether the server accepts requests", /*needs_key=*/false),
       &Api::health},
      {get("/v1/health", "health_v1", "Whether the server accepts requests", /*needs_key=*/false),
       &Api::health},
      {get("/props", "props", "Properties, in the format of llama-server's API", /*needs_key=*/true,
           /*asks_model=*/true),
       &Api::props},
      {get("/metrics", "metrics", "Metrics in Prometheus' text format"), &Api::metrics},
  };
  return kRoutes;
}

std::string Api::description() {
  std::vector<Operation> operations;
  for (const Route& route : routes()) operations.push_back(route.operation);
  return openapi_text(operations);
}

std::string Api::fields() {
  std::vector<Operation> operations;
  for (const Route& route : routes()) operations.push_back(route.operation);
  return fields_page(operations);
}

/// /v1 may be left out, as in llama-server. @param method  empty: any
const Api::Route* Api::find_route(std::string_view method, std::string_view path) {
  constexpr std::string_view kVersion = "/v1";
  const auto at = std::ranges::find_if(routes(), [&](const Route& route) {
    const Operation& operation = route.operation;
    const std::size_t fixed = operation.path.find('{');
    const bool is_path = fixed == std::string_view::npos
                             ? path == operation.path
                             : path.starts_with(operation.path.substr(0, fixed));
    return is_path && (method.empty() || method == operation.method);
  });
  if (at != routes().end()) return &*at;
  if (path.starts_with(kVersion)) return nullptr;
  return find_route(method, std::string(kVersion).append(path));
}

std::string Api::methods_at(const Route& known) {
  std::string methods;
  for (const Route& route : routes())
    if (route.operation.path == known.operation.path)
      methods += fmt::format("{}, ", route.operation.method);
  return methods.append(kOptions);
}

namespace {

/// HEAD is answered as GET, without the body.
std::string_view asked_method(const HttpRequest& request) {
  return request.method == "HEAD" ? std::string_view("GET") : request.method;
}

}  // namespace

void Api::handle(const std::shared_ptr<HttpExchange>& arrived) {
  std::shared_ptr<HttpExchange> exchange = arrived;
  if (is_ollamas(arrived->request().path)) exchange = with_ollamas_errors(arrived);
  const HttpRequest& request = exchange->request();
  if (request.method == kOptions) {
    const Route* known = find_route("", request.path);
    return exchange->answer(AccessControl::preflight(methods_at(*known)));
  }
  (this->*find_route(asked_method(request), request.path)->handle)(exchange);
}

std::optional<HttpAnswer> Api::refuse(const HttpRequest& head) const {
  auto answer = refusal_of(head);
  if (answer && is_ollamas(head.path)) answer = in_ollamas_shape(*std::move(answer));
  return answer;
}

std::optional<HttpAnswer> Api::refusal_of(const HttpRequest& head) const {
  if (auto answer = access_.refuse(head)) return answer;
  const Route* known = find_route("", head.path);
  if (known == nullptr) return error_answer(404, "no such path; docs/serving.md lists the paths");
  if (head.method == kOptions) return std::nullopt;
  const Route* route = find_route(asked_method(head), head.path);
  if (route == nullptr) {
    const std::string methods = methods_at(*known);
    return error_answer(405, "need " + methods.substr(0, methods.rfind(", ")), "",
                        {{"Allow", methods}});
  }
  if (route->operation.needs_key && !access_.has_key(head)) {
    return error_answer(401, "need `Authorization: Bearer KEY` with this server's key",
                        "invalid_api_key", {{"WWW-Authenticate", "Bearer"}});
  }
  if (head.method == "POST" && !may_be_json(head))
    return error_answer(415, "need `Content-Type: application/json`");
  if (head.method == "POST" && drains_)
    return error_answer(503, "the server is shutting down", "", {{"Retry-After", "1"}});
  return std::nullopt;
}

std::weak_ptr<HttpExchange> Api::keep(const std::shared_ptr<HttpExchange>& exchange) {
  const std::weak_ptr<HttpExchange> kept = exchange;
  exchange->set_on_gone([this, kept] { reading_.erase(kept.lock()); });
  reading_.insert(exchange);
  return kept;
}

void Api::go_on(const std::weak_ptr<HttpExchange>& kept, const Next& next) {
  const auto exchange = kept.lock();
  if (exchange == nullptr) return;  // its client has gone
  reading_.erase(exchange);
  try {
    next(exchange);
  } catch (const std::exception& what) {
    fail_exchange(*exchange, what);
    throw;  // to the log
  }
}

void Api::work(const std::shared_ptr<HttpExchange>& exchange, std::size_t bytes, const void* model,
               std::function<Next()> piece) {
  const auto kept = keep(exchange);
  workers_.take({.bytes = bytes,
                 .owner = kept,
                 .model = model,
                 .work = [this, kept, piece = std::move(piece)]() -> WorkerPool::Then {
                   return [this, kept, next = piece()] { go_on(kept, next); };
                 },
                 .failed =
                     [this, kept](const std::string& what) {
                       go_on(kept, [&](const std::shared_ptr<HttpExchange>&) {
                         throw std::runtime_error(what);
                       });
                     },
                 .lost = exchange->lost()});
}

void Api::with_model(const std::shared_ptr<HttpExchange>& exchange, const OrderedJson& name,
                     std::function<void(const std::shared_ptr<HttpExchange>&, const Lease&)> next) {
  ModelManager::Model* const model = name.is_null()     ? &manager_.first()
                                     : name.is_string() ? manager_.find(name.get<std::string>())
                                                        : nullptr;
  if (model == nullptr)
    return exchange->answer(error_answer(wrong_field("model", shown_json(name), manager_.names())));
  const auto kept = keep(exchange);
  manager_.take(*model, {.owner = kept,
                         .ready =
                             [this, kept, next = std::move(next)](const Lease& lease) {
                               go_on(kept, [&](const std::shared_ptr<HttpExchange>& waiting) {
                                 next(waiting, lease);
                               });
                             },
                         .refused =
                             [this, kept](const HttpAnswer& answer) {
                               go_on(kept, [&](const std::shared_ptr<HttpExchange>& waiting) {
                                 waiting->answer(answer);
                               });
                             }});
}

void Api::read_body(const std::shared_ptr<HttpExchange>& exchange, Read read) {
  const auto body = std::make_shared<std::string>(exchange->take_body());
  const std::size_t bytes = body->size();
  if (!workers_.has_room(bytes)) return exchange->answer(busy_answer());
  work(exchange, bytes, nullptr, [this, body, bytes, read = std::move(read)]() -> Next {
    auto parsed = parse_body(std::exchange(*body, ""));
    if (!parsed.ok()) return answer_with(error_answer(parsed.error()));
    const auto json = std::make_shared<const OrderedJson>(std::move(parsed).value());
    return [this, json, bytes, read](const std::shared_ptr<HttpExchange>& parsing) {
      const OrderedJson name =
          json->is_object() ? json->value("model", OrderedJson()) : OrderedJson();
      with_model(parsing, name,
                 [this, json, bytes, read](const std::shared_ptr<HttpExchange>& reading,
                                           const Lease& model) {
                   work(reading, bytes, model.get(),
                        [json, model, read] { return read(*json, model); });
                 });
    };
  });
}

template <Api::Parse<AnswerRequest> parse>
void Api::answer_texts(const std::shared_ptr<HttpExchange>& exchange) {
  read_body(exchange, [this](const OrderedJson& body, const Lease& model) -> Next {
    auto parsed = parse(body, model->facts);
    if (!parsed.ok()) return answer_with(error_answer(parsed.error()));
    const auto request = std::make_shared<const AnswerRequest>(std::move(parsed).value());
    return [this, model, request](const std::shared_ptr<HttpExchange>& reading) {
      note(reading->request().path, request->notes);
      if (request->at_once) return reading->answer(answer_of(*request->at_once));
      const auto answer = std::make_shared<Answer>(context_, model, reading, request);
      answers_.insert(answer);
      answer->start();
    };
  });
}

template <Api::Parse<FactsAnswer> answer>
void Api::answer_facts(const std::shared_ptr<HttpExchange>& exchange) {
  read_body(exchange, [this](const OrderedJson& body, const Lease& model) -> Next {
    auto made = answer(body, model->facts);
    if (!made.ok()) return answer_with(error_answer(made.error()));
    const auto facts = std::make_shared<const FactsAnswer>(std::move(made).value());
    return [this, facts](const std::shared_ptr<HttpExchange>& reading) {
      note(reading->request().path, facts->notes);
      HttpAnswer whole = answer_of(facts->json);
      whole.headers = note_headers(facts->notes);
      reading->answer(std::move(whole));
    };
  });
}

void Api::note(std::string_view path, const RequestNotes& notes) {
  constexpr std::size_t kMostNoted = 1000;  // names are the clients'
  for (const RequestNotes::Note& one : notes.all()) {
    const std::string line = fmt::format("{}: {}: {}", path, one.field, one.what);
    std::string known = line;  // once for all places of a list
    std::erase_if(known, [](char c) { return c >= '0' && c <= '9'; });
    if (noted_.size() >= kMostNoted || !noted_.insert(std::move(known)).second) continue;
    log_(line + " (said once)");
  }
}

}  // namespace llm
