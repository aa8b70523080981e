#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "engine/serve/text_service.h"
#include "tools/llmserve/answer.h"
#include "tools/llmserve/gate.h"
#include "tools/llmserve/http_server.h"
#include "tools/llmserve/metrics.h"
#include "tools/llmserve/openapi.h"
#include "tools/llmserve/served_model.h"
#include "tools/llmserve/workshop.h"

namespace llm {

/// OpenAI's API over a TextService: which path means what, who may ask, and what is counted. Of the
/// HTTP server's thread alone.
class Api {
 public:
  /// @param served, service  outlive this
  Api(const ServedModel& served, TextService& service, Gate gate);
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  /// For HttpServer::listen(). @param log  a line for each request
  /// @param fault  a line for what failed and should not have
  HttpHandlers handlers(std::function<void(const std::string& line)> log,
                        std::function<void(const std::string& line)> fault);
  /// Before the server runs; it outlives this.
  void attach(HttpServer& server);
  /// The API as OpenAPI 3.1: docs/openapi.json.
  static std::string description();
  /// From now on requests for texts are refused.
  void drain() { drains_ = true; }

 private:
  struct Route {
    Operation operation;
    void (Api::*handle)(const std::shared_ptr<HttpExchange>&);
  };
  static std::span<const Route> routes();
  static const Route* find_route(std::string_view method, std::string_view path);

  std::optional<HttpAnswer> refuse(const HttpRequest& head) const;
  void handle(const std::shared_ptr<HttpExchange>& exchange);

  /// What the server's thread does with a request that was read.
  using Next = std::function<void(const std::shared_ptr<HttpExchange>&)>;
  /// Lets the workshop parse the body, and `read` it there.
  void read_body(const std::shared_ptr<HttpExchange>& exchange,
                 std::function<Next(const Result<OrderedJson>& body)> read);
  void go_on(const std::weak_ptr<HttpExchange>& reading, const Next& next);

  void completions(const std::shared_ptr<HttpExchange>& exchange);
  void chat_completions(const std::shared_ptr<HttpExchange>& exchange);
  void responses(const std::shared_ptr<HttpExchange>& exchange);
  void messages(const std::shared_ptr<HttpExchange>& exchange);
  void count_tokens(const std::shared_ptr<HttpExchange>& exchange);
  void embeddings(const std::shared_ptr<HttpExchange>& exchange);
  void ollama_embed(const std::shared_ptr<HttpExchange>& exchange);
  void ollama_chat(const std::shared_ptr<HttpExchange>& exchange);
  void ollama_generate(const std::shared_ptr<HttpExchange>& exchange);
  void ollama_tags(const std::shared_ptr<HttpExchange>& exchange);
  void ollama_version(const std::shared_ptr<HttpExchange>& exchange);
  void infill(const std::shared_ptr<HttpExchange>& exchange);
  void list_models(const std::shared_ptr<HttpExchange>& exchange);
  void show_model(const std::shared_ptr<HttpExchange>& exchange);
  void tokenize(const std::shared_ptr<HttpExchange>& exchange);
  void detokenize(const std::shared_ptr<HttpExchange>& exchange);
  void health(const std::shared_ptr<HttpExchange>& exchange);
  void props(const std::shared_ptr<HttpExchange>& exchange);
  void metrics(const std::shared_ptr<HttpExchange>& exchange);
  void tokenizer_info(const std::shared_ptr<HttpExchange>& exchange);
  void page(const std::shared_ptr<HttpExchange>& exchange);
  void openapi(const std::shared_ptr<HttpExchange>& exchange);

  Next answer_to(Result<AnswerRequest> request);
  AnswerJson model_json(const std::string& id) const;
  AnswerJson spelled(const std::optional<TokenId>& id) const;

  const ServedModel& served_;
  Gate gate_;
  HttpServer* server_ = nullptr;
  bool drains_ = false;
  HttpFigures figures_;
  TextService& service_;
  Answer::Context context_;
  std::set<std::shared_ptr<HttpExchange>> reading_;  ///< whose bodies are in the workshop
  std::set<std::shared_ptr<Answer>> answers_;        ///< under way
  Workshop workshop_;                                // last: its threads use the above
};

}  // namespace llm
