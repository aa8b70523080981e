#ifndef LLM_TOOLS_LLMSERVE_API_H_
#define LLM_TOOLS_LLMSERVE_API_H_

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "engine/serve/text_service.h"
#include "tools/llmserve/answer.h"
#include "tools/llmserve/http_server.h"
#include "tools/llmserve/metrics.h"
#include "tools/llmserve/served_model.h"

namespace llm {

/// OpenAI's API over a TextService: which path means what, who may ask, and what is counted. Of the
/// HTTP server's thread alone.
class Api {
 public:
  /// @param served, service  outlive this
  /// @param api_key  what clients must send; empty: nothing
  Api(const ServedModel& served, TextService& service, std::string api_key);
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  /// For HttpServer::listen(). @param log  a line for each request
  HttpHandlers handlers(std::function<void(const std::string& line)> log);
  /// Before the server runs; it outlives this.
  void attach(HttpServer& server);
  /// From now on requests for texts are refused.
  void drain() { drains_ = true; }

 private:
  struct Route {
    std::string_view method;
    std::string_view path;
    bool needs_key;
    void (Api::*handle)(const std::shared_ptr<HttpExchange>&);
  };
  static std::span<const Route> routes();
  static const Route* find_route(std::string_view method, std::string_view path);

  std::optional<HttpAnswer> refuse(const HttpRequest& head) const;
  bool has_key(const HttpRequest& head) const;

  void completions(const std::shared_ptr<HttpExchange>& exchange);
  void chat_completions(const std::shared_ptr<HttpExchange>& exchange);
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

  void start_answer(const std::shared_ptr<HttpExchange>& exchange, Result<AnswerRequest> request);
  AnswerJson model_json(const std::string& id) const;
  AnswerJson spelled(const std::optional<TokenId>& id) const;

  const ServedModel& served_;
  std::string api_key_;
  HttpServer* server_ = nullptr;
  bool drains_ = false;
  HttpFigures figures_;
  TextService& service_;
  Answer::Context context_;
  std::set<std::shared_ptr<Answer>> answers_;  ///< under way
};

}  // namespace llm

#endif  // LLM_TOOLS_LLMSERVE_API_H_
