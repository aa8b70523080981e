// What the API tells without making texts.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/sampler/sampler_fields.h"
#include "tools/common/option_pages.h"
#include "tools/llmserve/api.h"
#include "tools/llmserve/page/page_files.h"

namespace llm {
namespace {

AnswerJson spelled(const Tokenizer& tokenizer, const std::optional<TokenId>& id) {
  return id ? AnswerJson(tokenizer.spelling(*id)) : AnswerJson();
}

}  // namespace

void Api::answer_of_model(const std::shared_ptr<HttpExchange>& exchange,
                          AnswerJson (*answer)(const LoadedModel& model)) {
  const auto& query = exchange->request().query;
  const auto name = query.find("model");
  with_model(exchange, name == query.end() ? OrderedJson() : OrderedJson(name->second),
             [answer](const std::shared_ptr<HttpExchange>& waiting, const Lease& model) {
               waiting->answer(answer_of(answer(*model)));
             });
}

void Api::ollama_tags(const std::shared_ptr<HttpExchange>& exchange) {
  AnswerJson models = AnswerJson::array();
  for (const ModelManager::Model& model : manager_.models()) {
    for (const std::string& id : model.ids)
      models.push_back({{"name", id},
                        {"model", id},
                        {"digest", model.lease ? model.lease->facts.model->file_sha256() : ""},
                        {"modified_at", "1970-01-01T00:00:00Z"},
                        {"size", model.bytes},
                        {"details", model.lease ? ollama_details(model.lease->facts)
                                                : AnswerJson{{"format", "gguf"}}}});
  }
  exchange->answer(answer_of({{"models", std::move(models)}}));
}

void Api::ollama_ps(const std::shared_ptr<HttpExchange>& exchange) {
  AnswerJson models = AnswerJson::array();
  for (const ModelManager::Model& model : manager_.models()) {
    if (model.lease == nullptr) continue;
    const ServedModel& served = model.lease->facts;
    models.push_back({{"name", model.id()},
                      {"model", model.id()},
                      {"size", model.bytes},
                      {"digest", served.model->file_sha256()},
                      {"details", ollama_details(served)},
                      {"expires_at", "9999-12-31T23:59:59Z"},
                      {"size_vram", 0},
                      {"context_length", served.context}});
  }
  exchange->answer(answer_of({{"models", std::move(models)}}));
}

/// A slot for each text that may run; the first ones have those that do.
void Api::slots(const std::shared_ptr<HttpExchange>& exchange) {
  answer_of_model(exchange, [](const LoadedModel& model) -> AnswerJson {
    const std::size_t n_running = model.service->figures().running;
    AnswerJson slots = AnswerJson::array();
    for (std::size_t i = 0; i < model.service->options().parallel; ++i)
      slots.push_back({{"id", i},
                       {"n_ctx", model.facts.context},
                       {"speculative", false},
                       {"is_processing", i < n_running}});
    return slots;
  });
}

void Api::ollama_version(const std::shared_ptr<HttpExchange>& exchange) {
  exchange->answer(answer_of({{"version", version()}}));
}

AnswerJson Api::model_json(const ModelManager::Model& model, const std::string& id,
                           std::int64_t created) {
  AnswerJson json = {{"id", id},
                     {"object", "model"},
                     {"created", created},
                     {"owned_by", "llmserve"},
                     {"loaded", model.lease != nullptr},
                     {"max_model_len", nullptr},
                     {"chat_template", nullptr},
                     {"system_fingerprint", nullptr}};
  if (model.lease == nullptr) return json;
  const ServedModel& served = model.lease->facts;
  json["max_model_len"] = served.context;
  if (served.style) json["chat_template"] = served.style->name();
  json["system_fingerprint"] = system_fingerprint(served);
  return json;
}

void Api::list_models(const std::shared_ptr<HttpExchange>& exchange) {
  AnswerJson models = AnswerJson::array();
  for (const ModelManager::Model& model : manager_.models()) {
    for (const std::string& id : model.ids)
      models.push_back(model_json(model, id, manager_.found_at()));
  }
  exchange->answer(answer_of({{"object", "list"}, {"data", std::move(models)}}));
}

void Api::show_model(const std::shared_ptr<HttpExchange>& exchange) {
  constexpr std::string_view kBefore = "/models/";
  const std::string& path = exchange->request().path;
  const std::string id = path.substr(path.find(kBefore) + kBefore.size());
  if (const ModelManager::Model* model = manager_.find(id))
    return exchange->answer(answer_of(model_json(*model, id, manager_.found_at())));
  exchange->answer(error_answer(wrong_field("model", shown_json(id), manager_.names())));
}

void Api::lora_adapters(const std::shared_ptr<HttpExchange>& exchange) {
  answer_of_model(exchange, [](const LoadedModel& model) -> AnswerJson {
    AnswerJson list = AnswerJson::array();
    const ServedAdapters& adapters = *model.facts.adapters;
    const std::vector<float> scales = adapters.scales();
    for (std::size_t i = 0; i < scales.size(); ++i)
      list.push_back({{"id", i},
                      {"name", adapters.all()[i].name},
                      {"path", adapters.all()[i].path},
                      {"scale", scales[i]}});
    return list;
  });
}

/// What lm-eval's remote tokenizer asks for.
void Api::tokenizer_info(const std::shared_ptr<HttpExchange>& exchange) {
  answer_of_model(exchange, [](const LoadedModel& model) -> AnswerJson {
    const Tokenizer& tokenizer = model.facts.tokenizer();
    return {{"bos_token", spelled(tokenizer, tokenizer.spec().bos)},
            {"eos_token", spelled(tokenizer, tokenizer.spec().eos)},
            {"pad_token", nullptr},
            {"vocab_size", tokenizer.size()}};
  });
}

/// A file of the page; of a name that there is not, 404. A browser loads nothing from elsewhere,
/// and runs no script and takes no style sheet that stands in HTML; KaTeX writes style attributes.
void Api::page(const std::shared_ptr<HttpExchange>& exchange) {
  constexpr std::string_view kFolder = "/page/";
  const std::string& path = exchange->request().path;
  const std::string name = path == "/" ? "page.html" : path.substr(kFolder.size());
  const PageFile* file = find_page_file(name);
  if (file == nullptr)
    return exchange->answer(error_answer(404, "no such file; GET / is the page that has them"));
  const bool is_library = name.find('/') != std::string::npos;
  exchange->answer(
      {.body = std::string(file->bytes),
       .content_type = std::string(file->type),
       .headers = {{"Content-Security-Policy",
                    "default-src 'none'; script-src 'self'; style-src 'self'; "
                    "style-src-attr 'unsafe-inline'; font-src 'self'; connect-src 'self'; "
                    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
                   {"X-Content-Type-Options", "nosniff"},
                   {"Cache-Control", is_library ? "max-age=86400" : "no-cache"}}});
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
  answer_of_model(exchange, [](const LoadedModel& model) -> AnswerJson {
    const ServedModel& served = model.facts;
    const Tokenizer& tokenizer = served.tokenizer();
    const SamplerOptions sampling;
    AnswerJson params = {{"n_predict", -1}, {"max_tokens", -1}};
    for (const SamplerField& field : kSamplerFields)
      field.visit(sampling, [&](auto value) { params[field.name] = value; });
    return {
        {"default_generation_settings", {{"n_ctx", served.context}, {"params", params}}},
        {"total_slots", model.service->options().parallel},
        {"model_alias", served.id},
        {"chat_template", served.style ? served.style->source() : served.model->chat_template()},
        {"bos_token", spelled(tokenizer, tokenizer.spec().bos)},
        {"eos_token", spelled(tokenizer, tokenizer.spec().eos)},
        {"modalities", {{"vision", false}, {"audio", false}}},
        {"build_info", "llmserve " + version()}};
  });
}

void Api::metrics(const std::shared_ptr<HttpExchange>& exchange) {
  figures_.connections = server_->n_connections();
  std::vector<ModelFigures> models;
  for (const ModelManager::Model& model : manager_.models()) {
    ModelFigures& figures = models.emplace_back(ModelFigures{model.id(), model.n_loads, 0, {}});
    if (model.lease == nullptr) continue;
    figures.bytes = model.bytes;
    figures.service = model.lease->service->figures();
  }
  std::optional<ReceiptFigures> receipts;
  if (context_.receipts != nullptr) receipts = context_.receipts->figures();
  exchange->answer({.body = metrics_text(models, figures_, receipts),
                    .content_type = "text/plain; version=0.0.4"});
}

}  // namespace llm
