// The manager of llmserve's models, with models that load when the test says so.

#include <condition_variable>
#include <mutex>

#include "tests/support/require_ok.h"
#include "tools/llmserve/models/model_manager.h"

namespace llm::test {
namespace {

/// A manager of the models a, b and c, of one byte each, and what a server's thread would do.
class ManagedModels {
 public:
  explicit ManagedModels(ModelManager::Options options) : options_(options) {
    manager_.attach([this](std::function<void()> function) {
      const std::lock_guard lock(mutex_);
      posted_.push_back(std::move(function));
      wake_.notify_all();
    });
  }

  /// Asks for a model. @return what came of it: a status, 200 with a lease, or 0
  struct Asked {
    std::shared_ptr<int> owner = std::make_shared<int>();
    int status = 0;
    Lease lease = nullptr;
  };
  using AskedPtr = std::shared_ptr<Asked>;
  static std::vector<int> statuses(std::initializer_list<AskedPtr> all) {
    std::vector<int> found;
    for (const AskedPtr& one : all) found.push_back(one->status);
    return found;
  }
  AskedPtr ask(std::string_view name) {
    auto asked = std::make_shared<Asked>();
    manager_.take(
        *manager_.find(name),
        {.owner = asked->owner,
         .ready =
             [asked](const Lease& lease) {
               asked->status = 200;
               asked->lease = lease;
             },
         .refused = [asked](const HttpAnswer& answer) { asked->status = answer.status; }});
    return asked;
  }
  /// Does the next `n` things that are posted: each load is two, its plan and itself.
  void run(int n) {
    for (; n > 0; --n) {
      std::unique_lock lock(mutex_);
      REQUIRE(wake_.wait_for(lock, std::chrono::minutes(1), [this] { return !posted_.empty(); }));
      const auto function = std::move(posted_.front());
      posted_.pop_front();
      lock.unlock();
      function();
    }
  }
  /// Until a load is under way that hold_loads() holds.
  void await_load() {
    run(1);
    std::unique_lock lock(mutex_);
    REQUIRE(wake_.wait_for(lock, std::chrono::minutes(1), [this] { return loading_; }));
  }
  void hold_loads(bool hold) {
    const std::lock_guard lock(mutex_);
    held_ = hold;
    wake_.notify_all();
  }
  ModelManager& manager() { return manager_; }
  std::string loaded() const {
    std::string names;
    for (const ModelManager::Model& model : manager_.models())
      if (model.lease) names += model.id();
    return names;
  }
  std::string planned;
  std::string started;  ///< the models whose loads were begun
  bool fails = false;

 private:
  Result<LoadPlan> plan(const ModelManager::Model& model) {
    planned += model.id();
    return LoadPlan{.bytes = 1, .load = [this, id = model.id()]() -> Result<Lease> {
                      std::unique_lock lock(mutex_);
                      started += id;
                      loading_ = true;
                      wake_.notify_all();
                      wake_.wait(lock, [this] { return !held_; });
                      loading_ = false;
                      if (fails) return Error{ErrorCode::kMalformed, "field", "found it"};
                      return std::make_shared<LoadedModel>();
                    }};
  }
  ModelManager::Options options_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> posted_;
  bool held_ = false;
  bool loading_ = false;
  ModelManager manager_{
      {{.ids = {"a"}, .path = ""}, {.ids = {"b"}, .path = ""}, {.ids = {"c"}, .path = ""}},
      [this](const ModelManager::Model& model) { return plan(model); },
      options_};
};

constexpr std::chrono::hours kLongPatience{1};
using Statuses = std::vector<int>;

}  // namespace

TEST_CASE("requests wait for one load of their model", "[llmserve]") {
  ManagedModels manager({.waiting = 4, .patience = kLongPatience});
  manager.hold_loads(true);
  const auto first = manager.ask("a");
  manager.await_load();
  const auto second = manager.ask("a:latest");
  const auto gone = manager.ask("a");
  gone->owner.reset();
  const auto other = manager.ask("b");
  CHECK(ManagedModels::statuses({first, other}) == Statuses{0, 0});
  manager.hold_loads(false);
  manager.run(3);
  CHECK(ManagedModels::statuses({first, second, gone, other}) == Statuses{200, 200, 0, 200});
  CHECK(second->lease == first->lease);
  CHECK(manager.started == "ab");
  CHECK(manager.ask("a")->lease == first->lease);  // at once
}

TEST_CASE("nothing is loaded for who has gone", "[llmserve]") {
  ManagedModels manager({.waiting = 4, .patience = kLongPatience});
  manager.hold_loads(true);
  const auto first = manager.ask("a");
  manager.await_load();
  manager.ask("b")->owner.reset();
  first->owner.reset();  // its load is under way
  const auto last = manager.ask("c");
  manager.hold_loads(false);
  manager.run(3);
  CHECK(ManagedModels::statuses({first, last}) == Statuses{0, 200});
  CHECK(manager.started == "ac");
  CHECK(manager.loaded() == "ac");
}

TEST_CASE("too many that wait are refused", "[llmserve]") {
  ManagedModels manager({.waiting = 2, .patience = kLongPatience});
  manager.hold_loads(true);
  const auto first = manager.ask("a");
  const auto second = manager.ask("b");
  CHECK(manager.ask("a")->status == 429);
  second->owner.reset();
  const auto third = manager.ask("c");
  CHECK(third->status == 0);
  manager.hold_loads(false);
  manager.run(4);
  CHECK(ManagedModels::statuses({first, third}) == Statuses{200, 200});
}

TEST_CASE("a failed load is told to all who wait, and tried again", "[llmserve]") {
  ManagedModels manager({.waiting = 4, .patience = kLongPatience});
  manager.fails = true;
  manager.hold_loads(true);
  const auto first = manager.ask("a");
  manager.await_load();
  const auto second = manager.ask("a");
  manager.hold_loads(false);
  manager.run(1);
  CHECK(ManagedModels::statuses({first, second}) == Statuses{500, 500});
  manager.fails = false;
  const auto third = manager.ask("a");
  manager.run(2);
  CHECK(third->status == 200);
  CHECK(manager.started == "aa");
}

TEST_CASE("idle models make room, those in use are waited for", "[llmserve]") {
  ManagedModels manager({.bytes = 2, .waiting = 4, .patience = kLongPatience});
  auto a = manager.ask("a");
  manager.run(2);
  auto b = manager.ask("b");
  manager.run(2);
  auto c = manager.ask("c");
  manager.run(1);
  CHECK(c->status == 0);
  CHECK(manager.loaded() == "ab");
  const auto again = manager.ask("b");  // what is loaded is given to others meanwhile
  CHECK(again->status == 200);
  a->lease.reset();
  manager.manager().proceed();
  manager.run(1);
  CHECK(c->status == 200);
  CHECK(manager.loaded() == "bc");
  b->lease.reset();
  again->lease.reset();
  c->lease.reset();
  manager.ask("b");
  const auto last = manager.ask("a");
  manager.run(2);
  CHECK(last->status == 200);
  CHECK(manager.loaded() == "ab");
}

TEST_CASE("who waits too long for room is refused", "[llmserve]") {
  ManagedModels manager({.bytes = 1, .waiting = 4, .patience = std::chrono::milliseconds(20)});
  const auto a = manager.ask("a");
  manager.run(2);
  const auto b = manager.ask("b");
  const auto c = manager.ask("c");
  manager.run(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  manager.manager().proceed();
  CHECK(ManagedModels::statuses({b, c}) == Statuses{503, 503});
  CHECK(manager.loaded() == "a");
  const auto later = manager.ask("b");  // whose file may have changed
  manager.run(1);
  CHECK(manager.planned == "abb");
}

TEST_CASE("the first model is loaded at once, if it fits", "[llmserve]") {
  ManagedModels manager({.waiting = 4, .patience = kLongPatience});
  require_ok(manager.manager().load_first());
  CHECK(manager.loaded() == "a");
  CHECK(manager.ask("a")->status == 200);
  ManagedModels small({.bytes = 0, .waiting = 4, .patience = kLongPatience});
  must_fail(small.manager().load_first(), ErrorCode::kResource);
  const auto asked = small.ask("b");
  small.run(1);
  CHECK(asked->status == 507);
}

}  // namespace llm::test
