#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "tools/llmserve/access_control.h"
#include "tools/llmserve/api/answer.h"
#include "tools/llmserve/api/openapi.h"
#include "tools/llmserve/api/served_model.h"
#include "tools/llmserve/http/http_server.h"
#include "tools/llmserve/http/worker_pool.h"
#include "tools/llmserve/metrics.h"
#include "tools/llmserve/models/model_manager.h"

namespace llm {

/// OpenAI's API over a ModelManager: which path means what, who may ask, and what is counted.
/// Of the HTTP server's thread alone.
class Api {
 public:
  /// @param manager, receipts  outlive this; receipts may be null
  /// @param cache_by_key  requests with different keys share nothing that is stored
  Api(ModelManager& manager, AccessControl gate, ReceiptLogFile* receipts,
      bool cache_by_key = false);
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  /// Starts its threads. Once, before the server runs. Errors: those of start_thread().
  Status start();
  /// For HttpServer::listen(). @param log  a line for each request
  /// @param fault  a line for what failed and should not have
  HttpHandlers handlers(std::function<void(const std::string& line)> log,
                        std::function<void(const std::string& line)> fault);
  /// Before the server runs; it outlives this and the manager.
  void attach(HttpServer& server);
  /// The API as OpenAPI 3.1.
  static std::string description();
  /// What fields of requests do: docs/fields.md.
  static std::string fields();
  /// From now on requests for texts are refused.
  void drain() { drains_ = true; }

 private:
  struct Route {
    Operation operation;
    void (Api::*handle)(const std::shared_ptr<HttpExchange>&);
  };
  static std::span<const Route> routes();
  static const Route* find_route(std::string_view method, std::string_view path);
  /// Those that the path of that route takes: "GET, POST, OPTIONS".
  static std::string methods_at(const Route& known);

  std::optional<HttpAnswer> refuse(const HttpRequest& head) const;
  /// The same in OpenAI's shape.
  std::optional<HttpAnswer> refusal_of(const HttpRequest& head) const;
  void handle(const std::shared_ptr<HttpExchange>& exchange);

  /// What the server's thread does with a request that was read.
  using Next = std::function<void(const std::shared_ptr<HttpExchange>&)>;
  /// What reads a body, in the workers.
  using Read = std::function<Next(const OrderedJson& body, const Lease& model)>;
  template <typename T>
  using Parse = Result<T> (*)(const OrderedJson& body, const ServedModel& served);

  /// Keeps an exchange until go_on(), or until its client goes.
  std::weak_ptr<HttpExchange> keep(const std::shared_ptr<HttpExchange>& exchange);
  void go_on(const std::weak_ptr<HttpExchange>& kept, const Next& next);
  /// Lets the workers do `piece`, and this thread what it returns. @param model  null: any
  void work(const std::shared_ptr<HttpExchange>& exchange, std::size_t bytes, const void* model,
            std::function<Next()> piece);
  /// Goes on when the model of that name is loaded. @param name  null: the first
  void with_model(const std::shared_ptr<HttpExchange>& exchange, const OrderedJson& name,
                  std::function<void(const std::shared_ptr<HttpExchange>&, const Lease&)> next);
  /// The same by the query's name, with what to answer.
  void answer_of_model(const std::shared_ptr<HttpExchange>& exchange,
                       AnswerJson (*answer)(const LoadedModel& model));
  /// Lets the workers parse the body and, with the model that it names, `read` it.
  void read_body(const std::shared_ptr<HttpExchange>& exchange, Read read);
  /// Answers with the texts that the body asks for.
  template <Parse<AnswerRequest> parse>
  void answer_texts(const std::shared_ptr<HttpExchange>& exchange);
  /// Answers with what `answer` makes of the body.
  template <Parse<FactsAnswer> answer>
  void answer_facts(const std::shared_ptr<HttpExchange>& exchange);

  /// Says in the log, once each, what is done with fields of requests to that path.
  void note(std::string_view path, const RequestNotes& notes);

  void ollama_tags(const std::shared_ptr<HttpExchange>& exchange);
  void ollama_ps(const std::shared_ptr<HttpExchange>& exchange);
  void slots(const std::shared_ptr<HttpExchange>& exchange);
  void lora_adapters(const std::shared_ptr<HttpExchange>& exchange);
  void ollama_version(const std::shared_ptr<HttpExchange>& exchange);
  void list_models(const std::shared_ptr<HttpExchange>& exchange);
  void show_model(const std::shared_ptr<HttpExchange>& exchange);
  void health(const std::shared_ptr<HttpExchange>& exchange);
  void props(const std::shared_ptr<HttpExchange>& exchange);
  void metrics(const std::shared_ptr<HttpExchange>& exchange);
  void tokenizer_info(const std::shared_ptr<HttpExchange>& exchange);
  void page(const std::shared_ptr<HttpExchange>& exchange);
  void openapi(const std::shared_ptr<HttpExchange>& exchange);

  static AnswerJson model_json(const ModelManager::Model& model, const std::string& id,
                               std::int64_t created);

  ModelManager& manager_;
  AccessControl access_;
  std::function<void(const std::string&)> log_;
  std::set<std::string> noted_;  ///< what the log has said of requests
  HttpServer* server_ = nullptr;
  bool drains_ = false;
  HttpFigures figures_;
  Answer::Context context_;
  std::set<std::shared_ptr<HttpExchange>> reading_;  ///< whose bodies are in the workers
  std::set<std::shared_ptr<Answer>> answers_;        ///< under way
  WorkerPool workers_;                               // last: its threads use the above
};

}  // namespace llm
