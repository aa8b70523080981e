#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/batching/generation_service.h"
#include "engine/engine.h"
#include "tools/llmserve/api/answer_json.h"
#include "tools/llmserve/api/answer_request.h"
#include "tools/llmserve/api/served_model.h"
#include "tools/llmserve/arguments.h"

namespace llm {

class LocalAnswer;

/// A model that generates texts for any number of threads at once, as llmserve does: requests are
/// bodies of its API, and an answer has the bits that llmserve's has. Usable from any thread.
class LocalModel : public std::enable_shared_from_this<LocalModel> {
 public:
  /// Opens `arguments.model` as llmserve would. Errors: those of plan_model() and of its load()
  /// @param progress  called meanwhile, by this thread; may be empty
  static Result<std::shared_ptr<LocalModel>> open(const ServeArguments& arguments,
                                                  Progress progress);

  const Model& model() const { return *served().model; }
  const ServedModel& served() const { return lease_->facts; }
  const std::string& path() const { return path_; }
  ServiceFigures figures() const { return service().figures(); }

  /// The endpoints of llmserve whose requests can be started.
  enum class Endpoint { kCompletions, kChat, kEmbeddings };
  /// Starts a request to one of them. Errors: kUsage naming the field; kResource where too many
  /// requests wait.
  Result<std::unique_ptr<LocalAnswer>> start(const std::string& body, Endpoint endpoint);

  /// A sequence that has evaluated `tokens`, and their logits, [tokens, n_vocab], which it keeps.
  /// Errors: those of Session::evaluate; kUsage for no token.
  struct Logits {
    std::unique_ptr<Sequence> owner;
    std::span<const float> rows;
  };
  Result<Logits> logits(std::span<const TokenId> tokens) const;

 private:
  friend class LocalAnswer;
  LocalModel(std::string path, Lease lease) : path_(std::move(path)), lease_(std::move(lease)) {}

  GenerationService& service() const { return *lease_->service; }

  std::string path_;
  Lease lease_;
};

/// An answer that is being made; destroyed before its end, it is given up. One thread at a time.
class LocalAnswer {
 public:
  LocalAnswer(std::shared_ptr<LocalModel> model, AnswerRequest request);
  ~LocalAnswer() { cancel(); }
  LocalAnswer(const LocalAnswer&) = delete;
  LocalAnswer& operator=(const LocalAnswer&) = delete;

  /// Waits for the next part of the answer or its end. @return false: neither came in time
  bool wait_for(std::chrono::milliseconds time);
  /// The next part that came, in order: server-sent events where the body asked to stream, else
  /// text. Nothing: none is there. Errors: what ended the answer.
  Result<std::optional<std::string>> next();
  /// Whether all of it is made, or an error ended it.
  bool is_complete() const;

  /// The answer as JSON. @pre is_complete(), and next() gave no error
  std::string whole() const;
  /// Of each text, where the body asked for logits_hash; else empty. @pre as whole()
  std::vector<std::string> logits_sha256() const;

  /// Gives it up with the parts that were not taken, where there is something left of it: that is
  /// next()'s error then.
  void cancel();

 private:
  friend class LocalModel;
  struct State;

  std::vector<GenerationJob> jobs();

  std::shared_ptr<LocalModel> model_;
  std::shared_ptr<State> state_;  ///< shared with the service's thread
  RequestId first_ = 0;
  bool is_submitted_ = false;
};

}  // namespace llm
