#include "tools/llmserve/models/model_manager.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <exception>
#include <new>
#include <utility>

#include "base/start_thread.h"
#include "tools/llmserve/conversations/json_fields.h"

namespace llm {
namespace {

/// A model that cannot be loaded is nothing that the request got wrong.
HttpAnswer unloadable(const Error& error) {
  return error_answer(error.code == ErrorCode::kResource ? 507 : 500, error.to_string(),
                      "model_not_loaded");
}

/// Tells each of the requests, and throws at last what any of them has thrown.
template <typename Requests, typename Tell>
void tell_all(const Requests& requests, const Tell& tell) {
  std::exception_ptr thrown;
  for (const auto& request : requests) {
    try {
      tell(request);
    } catch (...) {
      thrown = std::current_exception();
    }
  }
  if (thrown) std::rethrow_exception(thrown);
}

/// What `work` gives, or the error of memory or a thread that is refused.
template <typename T>
Result<T> guarded(const std::function<Result<T>()>& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kResource, "memory", "an allocation failed, need more memory"};
  } catch (const std::exception& what) {
    return Error{ErrorCode::kResource, "threads", what.what()};
  }
}

}  // namespace

ModelManager::ModelManager(std::vector<Model> models, PlanModel plan, const Options& options)
    : models_(std::move(models)),
      plan_(std::move(plan)),
      options_(options),
      found_at_(std::time(nullptr)) {}

ModelManager::~ModelManager() {
  if (loading_.joinable()) loading_.join();
  // A lease may be left in what was posted and is not done any more; texts of it would post, too.
  for (const Model& model : models_) {
    if (model.lease) model.lease->service.reset();
  }
  for (const Retired& retired : retired_) retired.lease->service.reset();
}

ModelManager::Model* ModelManager::find(std::string_view name) {
  constexpr std::string_view kTag = ":latest";
  for (const std::string_view wanted :
       {name, name.ends_with(kTag) ? name.substr(0, name.size() - kTag.size()) : name}) {
    for (Model& model : models_) {
      if (std::ranges::find(model.ids, wanted) != model.ids.end()) return &model;
    }
  }
  return nullptr;
}

std::string ModelManager::names() const {
  std::string names;
  for (const Model& model : models_) {
    for (const std::string& id : model.ids) names += (names.empty() ? "" : " or ") + shown_json(id);
  }
  return names;
}

Status ModelManager::check_size(const Model& model, const LoadPlan& plan) const {
  if (plan.bytes <= options_.bytes) return Ok{};
  return Error{.code = ErrorCode::kResource,
               .field = "--memory",
               .message = fmt::format(
                   "found {} MiB, need {} for this model: weights, keys and values, activations",
                   options_.bytes >> 20, (plan.bytes >> 20) + 1),
               .file = model.path,
               .hint = "lower --kv-memory, --ctx-size or --chunk"};
}

Status ModelManager::load_first() {
  Model& model = models_.front();
  LLM_TRY(const LoadPlan plan, plan_(model));
  LLM_RETURN_IF_ERROR(check_size(model, plan));
  LLM_TRY(Lease lease, plan.load());
  keep(model, std::move(lease), plan.bytes);
  return Ok{};
}

void ModelManager::take(Model& model, Request request) {
  model.last_used = ++clock_;
  if (model.lease && !model.lease->check().ok()) retire(model);
  if (model.lease) return request.ready(model.lease);
  next_wanted();  // those that have gone do not count
  std::size_t n_waiting = 0;
  for (const Model* wanted : wanted_) n_waiting += wanted->requests.size();
  if (n_waiting >= options_.waiting) return request.refused(busy_answer());
  request.deadline = std::chrono::steady_clock::now() + options_.patience;
  if (model.requests.empty()) wanted_.push_back(&model);
  model.requests.push_back(std::move(request));
  proceed();
}

ModelManager::Model* ModelManager::next_wanted() {
  for (Model* model : wanted_)
    std::erase_if(model->requests, [](const Request& one) { return one.owner.expired(); });
  std::erase_if(wanted_, [](Model* model) {
    if (!model->requests.empty()) return false;
    model->plan.reset();  // the file may be another one next time
    return true;
  });
  return wanted_.empty() ? nullptr : wanted_.front();
}

void ModelManager::retire(Model& model) {
  retired_.push_back({&model, model.lease, model.bytes});
  model.lease = nullptr;
}

bool ModelManager::unload_retired() {
  const auto unused =
      std::ranges::find(retired_, 1, [](const Retired& one) { return one.lease.use_count(); });
  if (unused == retired_.end()) return false;
  Retired retired = std::move(*unused);
  retired_.erase(unused);
  start(*retired.model, [lease = std::move(retired.lease)]() mutable -> std::function<void()> {
    lease.reset();
    return [] {};
  });
  return true;
}

std::optional<std::vector<Lease>> ModelManager::make_room(std::uint64_t bytes) {
  std::uint64_t used = 0;
  for (const Retired& retired : retired_) used += retired.bytes;
  std::vector<Model*> idle;
  for (Model& model : models_) {
    if (model.lease == nullptr) continue;
    used += model.bytes;
    if (model.lease.use_count() == 1) idle.push_back(&model);
  }
  std::ranges::sort(idle, {}, &Model::last_used);
  std::size_t n_unloaded = 0;
  while (used > options_.bytes - bytes) {
    if (n_unloaded == idle.size()) return std::nullopt;
    used -= idle[n_unloaded++]->bytes;
  }
  std::vector<Lease> unloaded;
  for (std::size_t i = 0; i < n_unloaded; ++i)
    unloaded.push_back(std::exchange(idle[i]->lease, nullptr));
  return unloaded;
}

void ModelManager::refuse_late_requests() {
  const auto now = std::chrono::steady_clock::now();
  std::size_t n_waiting = 0;
  for (const Model* model : wanted_) n_waiting += model->requests.size();
  std::vector<std::pair<Request, const Model*>> late;
  late.reserve(n_waiting);  // none is lost on the way
  for (Model* model : wanted_) {
    while (!model->requests.empty() && model->requests.front().deadline <= now) {
      late.emplace_back(std::move(model->requests.front()), model);
      model->requests.pop_front();
    }
  }
  tell_all(late, [](const auto& one) {
    one.first.refused(error_answer(
        503,
        fmt::format("no memory for the model {}: models in use fill --memory", one.second->id()),
        "model_not_loaded", {{"Retry-After", "1"}}));
  });
}

void ModelManager::proceed() {
  if (load_lost_) {
    if (loading_.joinable()) loading_.join();
    fail(*loads_, {ErrorCode::kResource, "memory", "an allocation failed, need more memory"});
    load_lost_ = false;  // where fail() has no memory, the next call tries again
  }
  if (loading_.joinable() || unload_retired()) return;
  Model* const model = next_wanted();
  if (model == nullptr) return;
  if (!model->plan) return plan(*model);
  auto unloaded = make_room(model->plan->bytes);
  if (!unloaded) return refuse_late_requests();
  load(*model, *std::exchange(model->plan, std::nullopt), *std::move(unloaded));
}

void ModelManager::start(Model& model, std::function<std::function<void()>()> job) {
  const auto work = [this](std::function<std::function<void()>()>& kept) {
    try {
      auto next = kept();
      kept = nullptr;  // what it holds of others
      post_([this, next = std::move(next)] {
        loading_.join();
        next();
        proceed();
      });
    } catch (const std::exception&) {
      load_lost_ = true;
    }
  };
  loads_ = &model;
  auto thread = start_thread("a model", [work, kept = std::move(job)]() mutable { work(kept); });
  if (!thread.ok()) return fail(model, thread.error());
  loading_ = std::move(thread).value();
}

void ModelManager::plan(Model& model) {
  start(model, [this, &model]() -> std::function<void()> {
    return [this, &model, plan = guarded<LoadPlan>([&] { return plan_(model); })] {
      const Status fits = plan.ok() ? check_size(model, *plan) : Status(plan.error());
      if (!fits.ok()) return fail(model, fits.error());
      if (!model.requests.empty()) model.plan = *plan;
    };
  });
}

void ModelManager::load(Model& model, LoadPlan plan, std::vector<Lease> unloaded) {
  start(model,
        [this, &model, plan = std::move(plan),
         unloaded = std::move(unloaded)]() mutable -> std::function<void()> {
          unloaded.clear();  // first, so that there is room
          return [this, &model, bytes = plan.bytes, lease = guarded<Lease>(plan.load)] {
            if (!lease.ok()) return fail(model, lease.error());
            keep(model, *lease, bytes);
            tell_all(take_requests(model),
                     [&](const Request& request) { request.ready(model.lease); });
          };
        });
}

void ModelManager::keep(Model& model, Lease lease, std::uint64_t bytes) {
  model.lease = std::move(lease);
  model.bytes = bytes;
  ++model.n_loads;
}

void ModelManager::fail(Model& model, const Error& error) {
  const HttpAnswer answer = unloadable(error);
  tell_all(take_requests(model), [&](const Request& request) { request.refused(answer); });
}

std::deque<ModelManager::Request> ModelManager::take_requests(Model& model) {
  std::deque<Request> requests = std::exchange(model.requests, {});  // first: it may throw
  std::erase(wanted_, &model);
  std::erase_if(requests, [](const Request& one) { return one.owner.expired(); });
  return requests;
}

}  // namespace llm
