#include "tools/llmserve/api.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/beast/core/string.hpp>
#include <ctime>
#include <stdexcept>
#include <utility>
#include <vector>

#include "engine/sampler/sampler_fields.h"
#include "tools/common/option_pages.h"
#include "tools/llmserve/embedded.h"
#include "tools/llmserve/embeddings.h"

namespace llm {
namespace {

constexpr std::size_t kMostLevels = 64;  // of JSON: schemas of tools
constexpr std::string_view kOptions = "OPTIONS";

HttpAnswer answer_of(const AnswerJson& json) { return {.body = dump(json) + "\n"}; }

/// What the server's thread does with an answer that is there.
std::function<void(const std::shared_ptr<HttpExchange>&)> answer_with(HttpAnswer answer) {
  return [kept = std::make_shared<HttpAnswer>(std::move(answer))](
             const std::shared_ptr<HttpExchange>& exchange) { exchange->answer(std::move(*kept)); };
}

/// "application/json", with parameters or without.
bool is_json(std::string_view content_type) {
  std::string_view type = content_type.substr(0, content_type.find(';'));
  type = type.substr(0, type.find_last_not_of(" \t") + 1);
  return boost::beast::iequals(type, "application/json");
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

Api::Api(const ServedModel& served, TextService& service, Gate gate)
    : served_(served),
      gate_(std::move(gate)),
      service_(service),
      context_{
          .served = served,
          .service = service,
          .workshop = workshop_,
          .post = {},
          .on_done = [this](const std::shared_ptr<Answer>& answer) { answers_.erase(answer); }},
      workshop_([this](Workshop::Then then) { server_->post(std::move(then)); }) {}

void Api::attach(HttpServer& server) {
  server_ = &server;
  context_.post = [&server](std::function<void()> function) { server.post(std::move(function)); };
}

HttpHandlers Api::handlers(std::function<void(const std::string&)> log,
                           std::function<void(const std::string&)> fault) {
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
      .headers = [this](const HttpRequest& request) { return gate_.headers(request); }};
}

std::span<const Api::Route> Api::routes() {
  static constexpr std::array<Route, 23> kRoutes = {{
      {{"POST",
        "/v1/completions",
        true,
        "createCompletion",
        "Continue a prompt",
        {"CompletionRequest", completion_fields}},
       &Api::completions},
      {{"POST",
        "/v1/chat/completions",
        true,
        "createChatCompletion",
        "Reply to a conversation",
        {"ChatRequest", chat_fields}},
       &Api::chat_completions},
      {{"POST",
        "/v1/responses",
        true,
        "createResponse",
        "Reply to a conversation, in the shape of OpenAI's newer API",
        {"ResponsesRequest", responses_fields}},
       &Api::responses},
      {{"POST",
        "/v1/messages",
        true,
        "createMessage",
        "Reply to a conversation, in the shape of Anthropic's API",
        {"MessagesRequest", messages_fields}},
       &Api::messages},
      {{"POST",
        "/v1/messages/count_tokens",
        true,
        "countTokens",
        "The tokens of a conversation of /v1/messages",
        {"CountRequest", count_fields}},
       &Api::count_tokens},
      {{"POST",
        "/v1/embeddings",
        true,
        "createEmbedding",
        "The embeddings of texts",
        {"EmbeddingRequest", embedding_fields}},
       &Api::embeddings},
      {{"POST",
        "/api/embed",
        true,
        "ollamaEmbed",
        "The embeddings of texts, in the shape of Ollama's API",
        {"OllamaEmbedRequest", ollama_embed_fields}},
       &Api::ollama_embed},
      {{"POST",
        "/api/chat",
        true,
        "ollamaChat",
        "Reply to a conversation, in the shape of Ollama's API",
        {"OllamaChatRequest", ollama_chat_fields}},
       &Api::ollama_chat},
      {{"POST",
        "/api/generate",
        true,
        "ollamaGenerate",
        "Reply to one message, in the shape of Ollama's API",
        {"OllamaGenerateRequest", ollama_text_fields}},
       &Api::ollama_generate},
      {{"GET", "/api/tags", true, "ollamaTags", "The one model, as Ollama lists it"},
       &Api::ollama_tags},
      {{"GET", "/api/version", true, "ollamaVersion", "The version"}, &Api::ollama_version},
      {{"POST", "/infill", true, "infill", "The text of a gap", {"InfillRequest", infill_fields}},
       &Api::infill},
      {{"GET", "/v1/models", true, "listModels", "The one model, by each of its names"},
       &Api::list_models},
      {{"GET", "/v1/models/{model}", true, "retrieveModel", "The model"}, &Api::show_model},
      {{"POST",
        "/tokenize",
        true,
        "tokenize",
        "A text or a conversation as token ids",
        {"TokenizeRequest", tokenize_fields}},
       &Api::tokenize},
      {{"POST",
        "/detokenize",
        true,
        "detokenize",
        "Token ids as text",
        {"DetokenizeRequest", detokenize_fields}},
       &Api::detokenize},
      {{"GET", "/tokenizer_info", true, "tokenizerInfo", "What lm-eval asks of a tokenizer"},
       &Api::tokenizer_info},
      {{"GET", "/", false, "page", "A page to chat with"}, &Api::page},
      {{"GET", "/openapi.json", false, "openapi", "This description"}, &Api::openapi},
      {{"GET", "/health", false, "health", "Whether requests are taken"}, &Api::health},
      {{"GET", "/v1/health", false, "health_v1", "Whether requests are taken"}, &Api::health},
      {{"GET", "/props", true, "props", "What llama-server tells under this name"}, &Api::props},
      {{"GET", "/metrics", true, "metrics", "Figures in Prometheus' text format"}, &Api::metrics},
  }};
  return kRoutes;
}

std::string Api::description() {
  std::vector<Operation> operations;
  for (const Route& route : routes()) operations.push_back(route.operation);
  return openapi_text(operations);
}

/// @param method  empty: any
const Api::Route* Api::find_route(std::string_view method, std::string_view path) {
  const auto at = std::ranges::find_if(routes(), [&](const Route& route) {
    const Operation& operation = route.operation;
    const std::size_t fixed = operation.path.find('{');
    const bool is_path = fixed == std::string_view::npos
                             ? path == operation.path
                             : path.starts_with(operation.path.substr(0, fixed));
    return is_path && (method.empty() || method == operation.method);
  });
  return at == routes().end() ? nullptr : &*at;
}

void Api::handle(const std::shared_ptr<HttpExchange>& exchange) {
  const HttpRequest& request = exchange->request();
  if (request.method == kOptions) {
    const Route* known = find_route("", request.path);
    return exchange->answer(
        Gate::preflight(fmt::format("{}, {}", known->operation.method, kOptions)));
  }
  (this->*find_route(request.method, request.path)->handle)(exchange);
}

std::optional<HttpAnswer> Api::refuse(const HttpRequest& head) const {
  if (auto answer = gate_.refuse(head)) return answer;
  const Route* known = find_route("", head.path);
  if (known == nullptr)
    return error_answer(404, "there is nothing here; docs/serving.md lists the paths");
  if (head.method == kOptions) return std::nullopt;
  const Route* route = find_route(head.method, head.path);
  if (route == nullptr) {
    HttpAnswer answer = error_answer(405, fmt::format("need {}", known->operation.method));
    answer.headers.emplace_back("Allow", fmt::format("{}, {}", known->operation.method, kOptions));
    return answer;
  }
  if (route->operation.needs_key && !gate_.has_key(head)) {
    HttpAnswer answer = error_answer(401, "need `Authorization: Bearer KEY` with this server's key",
                                     "invalid_api_key");
    answer.headers.emplace_back("WWW-Authenticate", "Bearer");
    return answer;
  }
  // A page of another site can send forms to this machine's ports, but no JSON.
  if (head.method == "POST" && !is_json(head.content_type))
    return error_answer(415, "need `Content-Type: application/json`");
  if (head.method == "POST" && drains_) {
    HttpAnswer answer = error_answer(503, "the server is about to end");
    answer.headers.emplace_back("Retry-After", "1");
    return answer;
  }
  return std::nullopt;
}

void Api::read_body(const std::shared_ptr<HttpExchange>& exchange,
                    std::function<Next(const Result<OrderedJson>& body)> read) {
  const auto body = std::make_shared<const std::string>(exchange->take_body());
  if (!workshop_.has_room(body->size())) return exchange->answer(busy_answer());
  const std::weak_ptr<HttpExchange> reading = exchange;
  exchange->set_on_gone([this, reading] { reading_.erase(reading.lock()); });
  reading_.insert(exchange);
  workshop_.take({.bytes = body->size(),
                  .owner = reading,
                  .work = [this, reading, body, read = std::move(read)]() -> Workshop::Then {
                    return [this, reading, next = read(parse_json(*body, kMostLevels))] {
                      go_on(reading, next);
                    };
                  },
                  .failed =
                      [this, reading](const std::string& what) {
                        go_on(reading, [&](const std::shared_ptr<HttpExchange>&) {
                          throw std::runtime_error(what);
                        });
                      }});
}

void Api::go_on(const std::weak_ptr<HttpExchange>& reading, const Next& next) {
  const auto exchange = reading.lock();
  if (exchange == nullptr) return;  // its client has gone
  reading_.erase(exchange);
  try {
    next(exchange);
  } catch (const std::exception&) {
    exchange->answer(failed_answer());
    throw;  // to the log
  }
}

Api::Next Api::answer_to(Result<AnswerRequest> request) {
  if (!request.ok()) return answer_with(error_answer(request.error()));
  const auto read = std::make_shared<const AnswerRequest>(std::move(request).value());
  return [this, read](const std::shared_ptr<HttpExchange>& exchange) {
    const auto answer = std::make_shared<Answer>(context_, exchange, read);
    answers_.insert(answer);
    answer->start();
  };
}

void Api::completions(const std::shared_ptr<HttpExchange>& exchange) {
  read_body(exchange, [this](const Result<OrderedJson>& body) {
    return answer_to(body.ok() ? parse_completion(*body, served_) : body.error());
  });
}

void Api::infill(const std::shared_ptr<HttpExchange>& exchange) {
  read_body(exchange, [this](const Result<OrderedJson>& body) {
    return answer_to(body.ok() ? parse_infill(*body, served_) : body.error());
  });
}

void Api::chat_completions(const std::shared_ptr<HttpExchange>& exchange) {
  read_body(exchange, [this](const Result<OrderedJson>& body) {
    return answer_to(body.ok() ? parse_chat(*body, served_) : body.error());
  });
}

void Api::responses(const std::shared_ptr<HttpExchange>& exchange) {
  read_body(exchange, [this](const Result<OrderedJson>& body) {
    return answer_to(body.ok() ? parse_responses(*body, served_) : body.error());
  });
}

void Api::messages(const std::shared_ptr<HttpExchange>& exchange) {
  read_body(exchange, [this](const Result<OrderedJson>& body) {
    return answer_to(body.ok() ? parse_messages(*body, served_) : body.error());
  });
}

void Api::count_tokens(const std::shared_ptr<HttpExchange>& exchange) {
  read_body(exchange, [this](const Result<OrderedJson>& body) {
    const auto n = body.ok() ? parse_count(*body, served_) : body.error();
    return answer_with(n.ok() ? answer_of({{"input_tokens", *n}}) : error_answer(n.error()));
  });
}

void Api::embeddings(const std::shared_ptr<HttpExchange>& exchange) {
  read_body(exchange, [this](const Result<OrderedJson>& body) {
    return answer_to(body.ok() ? parse_embeddings(*body, served_) : body.error());
  });
}

void Api::ollama_embed(const std::shared_ptr<HttpExchange>& exchange) {
  read_body(exchange, [this](const Result<OrderedJson>& body) {
    return answer_to(body.ok() ? parse_ollama_embed(*body, served_) : body.error());
  });
}

void Api::ollama_chat(const std::shared_ptr<HttpExchange>& exchange) {
  read_body(exchange, [this](const Result<OrderedJson>& body) {
    return answer_to(body.ok() ? parse_ollama_chat(*body, served_) : body.error());
  });
}

void Api::ollama_generate(const std::shared_ptr<HttpExchange>& exchange) {
  read_body(exchange, [this](const Result<OrderedJson>& body) {
    return answer_to(body.ok() ? parse_ollama_text(*body, served_) : body.error());
  });
}

void Api::ollama_tags(const std::shared_ptr<HttpExchange>& exchange) {
  AnswerJson models = AnswerJson::array();
  for (const std::string& id : served_.ids)
    models.push_back({{"name", id},
                      {"model", id},
                      {"digest", served_.model->file_sha256()},
                      {"details", {{"format", "gguf"}}}});
  exchange->answer(answer_of({{"models", std::move(models)}}));
}

void Api::ollama_version(const std::shared_ptr<HttpExchange>& exchange) {
  exchange->answer(answer_of({{"version", version()}}));
}

AnswerJson Api::model_json(const std::string& id) const {
  return {{"id", id},
          {"object", "model"},
          {"created", served_.loaded_at},
          {"owned_by", "llmserve"},
          {"max_model_len", served_.context},
          {"chat_template", served_.style ? AnswerJson(served_.style->name()) : AnswerJson()},
          {"system_fingerprint", system_fingerprint(served_)}};
}

AnswerJson Api::spelled(const std::optional<TokenId>& id) const {
  return id ? AnswerJson(served_.tokenizer().spelling(*id)) : AnswerJson();
}

void Api::list_models(const std::shared_ptr<HttpExchange>& exchange) {
  AnswerJson models = AnswerJson::array();
  for (const std::string& id : served_.ids) models.push_back(model_json(id));
  exchange->answer(answer_of({{"object", "list"}, {"data", std::move(models)}}));
}

void Api::show_model(const std::shared_ptr<HttpExchange>& exchange) {
  const std::string id = exchange->request().path.substr(std::string_view("/v1/models/").size());
  if (served_.has_id(id)) return exchange->answer(answer_of(model_json(id)));
  exchange->answer(error_answer(404, fmt::format("need model {}", fmt::join(served_.ids, " or ")),
                                "model_not_found"));
}

void Api::tokenize(const std::shared_ptr<HttpExchange>& exchange) {
  read_body(exchange, [this](const Result<OrderedJson>& body) {
    const auto ids = body.ok() ? parse_tokenize(*body, served_) : body.error();
    if (!ids.ok()) return answer_with(error_answer(ids.error()));
    return answer_with(
        answer_of({{"count", ids->size()}, {"max_model_len", served_.context}, {"tokens", *ids}}));
  });
}

void Api::detokenize(const std::shared_ptr<HttpExchange>& exchange) {
  read_body(exchange, [this](const Result<OrderedJson>& body) {
    const auto text = body.ok() ? parse_detokenize(*body, served_) : body.error();
    return answer_with(text.ok() ? answer_of({{"prompt", *text}}) : error_answer(text.error()));
  });
}

/// What lm-eval's remote tokenizer asks for.
void Api::tokenizer_info(const std::shared_ptr<HttpExchange>& exchange) {
  const Tokenizer& tokenizer = served_.tokenizer();
  exchange->answer(answer_of({{"bos_token", spelled(tokenizer.spec().bos)},
                              {"eos_token", spelled(tokenizer.spec().eos)},
                              {"pad_token", nullptr},
                              {"vocab_size", tokenizer.size()}}));
}

void Api::page(const std::shared_ptr<HttpExchange>& exchange) {
  exchange->answer(
      {.body = std::string(kPage),
       .content_type = "text/html; charset=utf-8",
       .headers = {{"Content-Security-Policy",
                    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                    "connect-src 'self'; img-src data:; frame-ancestors 'none'"},
                   {"Cache-Control", "no-cache"}}});
}

void Api::openapi(const std::shared_ptr<HttpExchange>& exchange) {
  exchange->answer({.body = description()});
}

void Api::health(const std::shared_ptr<HttpExchange>& exchange) {
  HttpAnswer answer = answer_of({{"status", drains_ ? "draining" : "ok"}});
  if (drains_) answer.status = 503;
  exchange->answer(std::move(answer));
}

/// What llama-server tells under this name, as far as it means something here.
void Api::props(const std::shared_ptr<HttpExchange>& exchange) {
  const VocabSpec& spec = served_.tokenizer().spec();
  const SamplerOptions sampling;
  AnswerJson params = {{"n_predict", -1}, {"max_tokens", -1}};
  for (const SamplerField& field : kSamplerFields)
    field.visit(sampling, [&](auto value) { params[field.name] = value; });
  exchange->answer(answer_of(
      {{"default_generation_settings", {{"n_ctx", served_.context}, {"params", params}}},
       {"total_slots", service_.options().parallel},
       {"model_alias", served_.id()},
       {"chat_template", served_.style ? served_.style->source() : served_.model->chat_template()},
       {"bos_token", spelled(spec.bos)},
       {"eos_token", spelled(spec.eos)},
       {"modalities", {{"vision", false}, {"audio", false}}},
       {"build_info", "llmserve " + version()}}));
}

void Api::metrics(const std::shared_ptr<HttpExchange>& exchange) {
  figures_.connections = server_->n_connections();
  exchange->answer({.body = metrics_text(service_.figures(), figures_),
                    .content_type = "text/plain; version=0.0.4"});
}

}  // namespace llm
