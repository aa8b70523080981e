#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/batching/generation_service.h"
#include "tools/llmserve/api/answer_json.h"
#include "tools/llmserve/api/answer_request.h"
#include "tools/llmserve/api/receipt_log_file.h"
#include "tools/llmserve/api/served_model.h"
#include "tools/llmserve/http/http_server.h"
#include "tools/llmserve/http/worker_pool.h"

namespace llm {

HttpAnswer answer_of(const AnswerJson& json);
/// What an answer's headers tell of its request.
HttpHeaders note_headers(const RequestNotes& notes);
/// OpenAI's shape of an error: 400 naming the field for what the client got wrong (404 for another
/// model), 500 for the rest.
HttpAnswer error_answer(const Error& error);
/// The same for what is no Error. @param code  OpenAI's word for it, or ""
HttpAnswer error_answer(int status, std::string_view message, std::string_view code = "",
                        HttpHeaders headers = {});
/// 429: no place now; later there may be.
HttpAnswer busy_answer();
/// 500: something failed that nobody foresaw, of which the log says more.
HttpAnswer failed_answer();

/// What a handler owes where it has thrown `what`: gives `exchange` up where memory was refused,
/// and answers it with 500 otherwise.
void fail_exchange(HttpExchange& exchange, const std::exception& what) noexcept;

/// An answer that is being made: submits the choices' texts, and writes what comes of them. Of the
/// HTTP server's thread alone; the service's thread only posts to it, through weak references, so
/// that connections are closed by their own thread.
class Answer : public std::enable_shared_from_this<Answer> {
 public:
  /// What all answers use; outlives them.
  struct Context {
    WorkerPool& workers;
    /// HttpServer::post; is copied, and called by the service's thread after all this has gone.
    std::function<void(std::function<void()>)> post;
    /// Is told when an answer is complete or its client has gone, and drops it.
    std::function<void(const std::shared_ptr<Answer>&)> on_done;
    ReceiptLogFile* receipts = nullptr;  ///< null: there is no log
    bool cache_by_key = false;           ///< GenerationRequest::scope is the client's key
  };

  Answer(Context& context, Lease model, std::shared_ptr<HttpExchange> exchange,
         std::shared_ptr<const AnswerRequest> request);

  /// @pre it belongs to a shared_ptr that somebody keeps until on_done
  void start();

 private:
  std::vector<GenerationJob> jobs();
  void grow(std::size_t index, const TextEvent& event);
  void tell_progress(std::size_t index, const PromptProgress& progress);
  void end_choice(std::size_t index, const Result<GenerationOutput>& text);
  void fail(const HttpAnswer& answer);
  /// Gives up where memory was refused.
  void fail(const std::exception& what) noexcept;
  void finish();
  void write_whole(std::string hashes);
  void cancel();
  void done();

  Context& context_;
  Lease model_;
  std::shared_ptr<HttpExchange> exchange_;
  std::shared_ptr<const AnswerRequest> request_;
  std::shared_ptr<AnswerWriter> writer_;
  std::vector<GenerationOutput> texts_;
  std::size_t n_ended_ = 0;
  bool is_submitted_ = false;
  RequestId first_id_ = 0;
  bool is_done_ = false;
};

}  // namespace llm
