#include "tools/llmserve/api.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include "tools/common/option_pages.h"
#include "tools/llmserve/embedded.h"

namespace llm {
namespace {

constexpr std::size_t kMostLevels = 16;  // of JSON
constexpr std::string_view kModels = "/v1/models/";

HttpAnswer answer_of(const AnswerJson& json) { return {.body = dump(json) + "\n"}; }

Result<Json> body_of(const HttpExchange& exchange) {
  return parse_json(exchange.request().body, kMostLevels);
}

/// Takes as long wherever the texts differ, so that a key cannot be guessed letter by letter.
bool same_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned differs = 0;
  for (std::size_t i = 0; i < a.size(); ++i) differs |= static_cast<unsigned>(a[i] ^ b[i]);
  return differs == 0;
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

Api::Api(const ServedModel& served, TextService& service, std::string api_key)
    : served_(served),
      api_key_(std::move(api_key)),
      service_(service),
      context_{
          .served = served,
          .service = service,
          .post = {},
          .on_done = [this](const std::shared_ptr<Answer>& answer) { answers_.erase(answer); }} {}

void Api::attach(HttpServer& server) {
  server_ = &server;
  context_.post = [&server](std::function<void()> function) { server.post(std::move(function)); };
}

HttpHandlers Api::handlers(std::function<void(const std::string&)> log) {
  return {
      .refuse = [this](const HttpRequest& head) { return refuse(head); },
      .handle =
          [this](const std::shared_ptr<HttpExchange>& exchange) {
            const HttpRequest& request = exchange->request();
            (this->*find_route(request.method, request.path)->handle)(exchange);
          },
      .error = [](int status, const std::string& message) { return error_answer(status, message); },
      .log =
          [this, log = std::move(log)](const HttpRequest& request, const HttpOutcome& outcome) {
            ++figures_.answers[outcome.status];
            log(log_line(request, outcome));
          }};
}

std::span<const Api::Route> Api::routes() {
  static constexpr std::array<Route, 14> kRoutes = {{
      {"POST", "/v1/completions", true, &Api::completions},
      {"POST", "/v1/chat/completions", true, &Api::chat_completions},
      {"POST", "/infill", true, &Api::infill},
      {"GET", "/v1/models", true, &Api::list_models},
      {"GET", kModels, true, &Api::show_model},
      {"POST", "/tokenize", true, &Api::tokenize},
      {"POST", "/detokenize", true, &Api::detokenize},
      {"GET", "/tokenizer_info", true, &Api::tokenizer_info},
      {"GET", "/", false, &Api::page},
      {"GET", "/openapi.json", false, &Api::openapi},
      {"GET", "/health", false, &Api::health},
      {"GET", "/v1/health", false, &Api::health},
      {"GET", "/props", true, &Api::props},
      {"GET", "/metrics", true, &Api::metrics},
  }};
  return kRoutes;
}

/// @param method  empty: any
const Api::Route* Api::find_route(std::string_view method, std::string_view path) {
  const auto at = std::ranges::find_if(routes(), [&](const Route& route) {
    const bool is_path = route.path == kModels ? path.starts_with(kModels) : path == route.path;
    return is_path && (method.empty() || method == route.method);
  });
  return at == routes().end() ? nullptr : &*at;
}

std::optional<HttpAnswer> Api::refuse(const HttpRequest& head) const {
  const Route* known = find_route("", head.path);
  if (known == nullptr)
    return error_answer(404, "there is nothing here; docs/serving.md lists the paths");
  const Route* route = find_route(head.method, head.path);
  if (route == nullptr) {
    HttpAnswer answer = error_answer(405, fmt::format("need {}", known->method));
    answer.headers.emplace_back("Allow", known->method);
    return answer;
  }
  if (route->needs_key && !has_key(head)) {
    HttpAnswer answer = error_answer(401, "need `Authorization: Bearer KEY` with this server's key",
                                     "invalid_api_key");
    answer.headers.emplace_back("WWW-Authenticate", "Bearer");
    return answer;
  }
  // A page of another site can send forms to this machine's ports, but no JSON.
  if (head.method == "POST" && !head.content_type.starts_with("application/json"))
    return error_answer(415, "need `Content-Type: application/json`");
  if (head.method == "POST" && drains_) {
    HttpAnswer answer = error_answer(503, "the server is about to end");
    answer.headers.emplace_back("Retry-After", "1");
    return answer;
  }
  return std::nullopt;
}

bool Api::has_key(const HttpRequest& head) const {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view given = head.authorization;
  return api_key_.empty() ||
         (given.starts_with(kBearer) && same_secret(given.substr(kBearer.size()), api_key_));
}

void Api::start_answer(const std::shared_ptr<HttpExchange>& exchange,
                       Result<AnswerRequest> request) {
  if (!request.ok()) return exchange->answer(error_answer(request.error()));
  const auto answer = std::make_shared<Answer>(context_, exchange, std::move(request).value());
  answers_.insert(answer);
  answer->start();
}

void Api::completions(const std::shared_ptr<HttpExchange>& exchange) {
  const auto body = body_of(*exchange);
  start_answer(exchange, body.ok() ? parse_completion(*body, served_) : body.error());
}

void Api::infill(const std::shared_ptr<HttpExchange>& exchange) {
  const auto body = body_of(*exchange);
  start_answer(exchange, body.ok() ? parse_infill(*body, served_) : body.error());
}

void Api::chat_completions(const std::shared_ptr<HttpExchange>& exchange) {
  const auto body = body_of(*exchange);
  start_answer(exchange, body.ok() ? parse_chat(*body, served_) : body.error());
}

AnswerJson Api::model_json(const std::string& id) const {
  return {{"id", id},
          {"object", "model"},
          {"created", served_.loaded_at},
          {"owned_by", "llmserve"},
          {"max_model_len", served_.context},
          {"chat_template",
           served_.chat_format ? AnswerJson(chat_format_name(*served_.chat_format)) : AnswerJson()},
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
  const std::string id = exchange->request().path.substr(kModels.size());
  if (served_.has_id(id)) return exchange->answer(answer_of(model_json(id)));
  exchange->answer(error_answer(404, fmt::format("need model {}", fmt::join(served_.ids, " or ")),
                                "model_not_found"));
}

void Api::tokenize(const std::shared_ptr<HttpExchange>& exchange) {
  const auto ids = [&]() -> Result<std::vector<TokenId>> {
    LLM_TRY(const Json body, body_of(*exchange));
    JsonFields fields(body);
    read_model(fields, served_);
    const Json* messages = fields.find("messages");
    std::string text;
    fields.text("prompt", text);
    bool add_special = true;
    bool parse_special = false;
    fields.flag("add_special_tokens", add_special);
    fields.flag("parse_special", parse_special);
    if (messages != nullptr && parse_special)
      fields.fail("parse_special", "true with messages", "a prompt");
    if ((messages == nullptr) == (fields.find("prompt") == nullptr))
      fields.fail("prompt", messages == nullptr ? "nothing" : "messages as well",
                  "either prompt or messages");
    LLM_RETURN_IF_ERROR(fields.finish());
    if (messages != nullptr) {
      LLM_TRY(Prompt prompt, chat_prompt(*messages, served_));
      return std::move(prompt.ids);
    }
    return prompt_ids(served_.tokenizer(), text, add_special, parse_special);
  }();
  if (!ids.ok()) return exchange->answer(error_answer(ids.error()));
  exchange->answer(
      answer_of({{"count", ids->size()}, {"max_model_len", served_.context}, {"tokens", *ids}}));
}

void Api::detokenize(const std::shared_ptr<HttpExchange>& exchange) {
  const auto text = [&]() -> Result<std::string> {
    LLM_TRY(const Json body, body_of(*exchange));
    JsonFields fields(body);
    read_model(fields, served_);
    const Json* tokens = fields.find("tokens");
    if (tokens == nullptr || !tokens->is_array())
      fields.fail("tokens", tokens == nullptr ? "nothing" : shown_json(*tokens),
                  "an array of token ids");
    LLM_RETURN_IF_ERROR(fields.finish());
    LLM_TRY(const auto ids, ids_of(*tokens, served_.tokenizer(), "tokens"));
    return served_.tokenizer().decode(ids);
  }();
  if (!text.ok()) return exchange->answer(error_answer(text.error()));
  exchange->answer(answer_of({{"prompt", *text}}));
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
  exchange->answer({.body = std::string(kOpenApi)});
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
  const AnswerJson params = {{"n_predict", -1},
                             {"max_tokens", -1},
                             {"temperature", sampling.temperature},
                             {"top_k", sampling.top_k},
                             {"top_p", sampling.top_p},
                             {"min_p", sampling.min_p},
                             {"repeat_penalty", sampling.repeat_penalty},
                             {"repeat_last_n", sampling.repeat_last_n}};
  exchange->answer(
      answer_of({{"default_generation_settings", {{"n_ctx", served_.context}, {"params", params}}},
                 {"total_slots", service_.options().parallel},
                 {"model_alias", served_.id()},
                 {"chat_template", served_.model->chat_template()},
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
