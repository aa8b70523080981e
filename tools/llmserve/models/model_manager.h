#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/result.h"
#include "engine/batching/generation_service.h"
#include "tools/llmserve/api/answer.h"
#include "tools/llmserve/api/served_model.h"
#include "tools/llmserve/http/http_server.h"

namespace llm {

/// What loading a model will take, found out from the head of its file.
struct LoadPlan {
  std::uint64_t bytes = 0;  ///< of memory, about: weights, keys and values, activations
  std::function<Result<Lease>()> load;
};

/// The models of a server, of which some are loaded. One that is asked for is loaded by a thread of
/// its own, one model at a time; before that, models that nobody uses are unloaded, the one that
/// was asked for the longest ago first, until all fit into the memory. One that is in use never is:
/// requests wait until it is not. One whose weights are not sound any more (LoadedModel::check())
/// is loaded anew by the next request. Of the HTTP server's thread alone.
class ModelManager {
 public:
  struct Options {
    std::uint64_t bytes = UINT64_MAX;       ///< of all loaded models
    std::size_t waiting = 0;                ///< most requests that wait for a model
    std::chrono::milliseconds patience{0};  ///< of one that waits for room
  };

  /// A request that wants a lease. One of the functions is called, at once or later, unless the
  /// owner has gone.
  struct Request {
    std::weak_ptr<void> owner;
    std::function<void(const Lease&)> ready;
    std::function<void(const HttpAnswer&)> refused;
    std::chrono::steady_clock::time_point deadline = {};  ///< set by take()
  };

  struct Model {
    std::vector<std::string> ids;  ///< as clients may name it; 1 or more
    std::string path;
    Lease lease = nullptr;    ///< null: not loaded
    std::uint64_t bytes = 0;  ///< of memory, while it is loaded
    std::uint64_t n_loads = 0;
    std::uint64_t last_used = 0;
    std::optional<LoadPlan> plan = {};  ///< of what waits for room
    std::deque<Request> requests = {};

    const std::string& id() const { return ids.front(); }
  };
  /// Called by the thread that loads.
  using PlanModel = std::function<Result<LoadPlan>(const Model&)>;

  /// @param models  1 or more, of different names
  ModelManager(std::vector<Model> models, PlanModel plan, const Options& options);
  /// Waits for a load under way, and ends the services of all leases.
  ~ModelManager();
  ModelManager(const ModelManager&) = delete;
  ModelManager& operator=(const ModelManager&) = delete;

  /// Loads the first model now. Errors: those of plan and load; kResource for one that is larger
  /// than the memory.
  Status load_first();
  /// @param post  HttpServer::post, of one that outlives this
  void attach(std::function<void(std::function<void()>)> post) { post_ = std::move(post); }

  const std::vector<Model>& models() const { return models_; }
  std::int64_t found_at() const { return found_at_; }  ///< seconds since 1970
  /// The model of that name; Ollama's clients put a tag behind one that has none. nullptr: none has
  /// it.
  Model* find(std::string_view name);
  Model& first() { return models_.front(); }
  /// What names there are: `"one" or "other"`.
  std::string names() const;

  /// Refused with 429 where too many wait, with 500 or 507 for a model that cannot be loaded, which
  /// the next request tries again, and with 503 where no room comes in time.
  void take(Model& model, Request request);
  /// What time has changed: call it now and then.
  void proceed();

 private:
  Status check_size(const Model& model, const LoadPlan& plan) const;
  /// The model of the longest waiting request, without those that have gone; or nullptr.
  Model* next_wanted();
  /// Takes a model that is loaded off the manager; those who use it keep it.
  void retire(Model& model);
  /// Lets a thread unload a retired model that nobody uses any more. @return whether there was one
  bool unload_retired();
  /// Models that nobody uses, without which `bytes` more fit; nothing where they would not.
  std::optional<std::vector<Lease>> make_room(std::uint64_t bytes);
  void refuse_late_requests();
  /// Lets a new thread do `job`, and then this one what it returns.
  void start(Model& model, std::function<std::function<void()>()> job);
  void plan(Model& model);
  void load(Model& model, LoadPlan plan, std::vector<Lease> unloaded);
  void keep(Model& model, Lease lease, std::uint64_t bytes);
  void fail(Model& model, const Error& error);
  /// Those that wait, which the model has no more then.
  std::deque<Request> take_requests(Model& model);

  std::vector<Model> models_;
  PlanModel plan_;
  Options options_;
  std::int64_t found_at_;
  std::function<void(std::function<void()>)> post_;
  struct Retired {
    Model* model;
    Lease lease;
    std::uint64_t bytes;
  };
  std::deque<Retired> retired_;
  std::deque<Model*> wanted_;  ///< those with requests, in the order of the first ones
  std::uint64_t clock_ = 0;
  std::thread loading_;
  Model* loads_ = nullptr;               ///< that thread's
  std::atomic<bool> load_lost_ = false;  ///< it had no memory to post what came of it
};

}  // namespace llm
