// The shelf of llmserve's models, with models that load when the test says so.

#include <condition_variable>
#include <mutex>

#include "tests/support/require_ok.h"
#include "tools/llmserve/models/model_manager.h"

namespace llm::test {
namespace {

/// A shelf of the models a, b and c, of one byte each, and what a server's thread would do.
class Shelf {
 public:
  explicit Shelf(ModelManager::Options options) : options_(options) {
    shelf_.attach([this](std::function<void()> function) {
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
    shelf_.take(*shelf_.find(name),
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
  ModelManager& shelf() { return shelf_; }
  std::string loaded() const {
    std::string names;
    for (const ModelManager::Model& model : shelf_.models())
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
  ModelManager shelf_{
      {{.ids = {"a"}, .path = ""}, {.ids = {"b"}, .path = ""}, {.ids = {"c"}, .path = ""}},
      [this](const ModelManager::Model& model) { return plan(model); },
      options_};
};

constexpr std::chrono::hours kLongPatience{1};
using Statuses = std::vector<int>;

}  // namespace

TEST_CASE("requests wait for one load of their model", "[llmserve]") {
  Shelf shelf({.waiting = 4, .patience = kLongPatience});
  shelf.hold_loads(true);
  const auto first = shelf.ask("a");
  shelf.await_load();
  const auto second = shelf.ask("a:latest");
  const auto gone = shelf.ask("a");
  gone->owner.reset();
  const auto other = shelf.ask("b");
  CHECK(Shelf::statuses({first, other}) == Statuses{0, 0});
  shelf.hold_loads(false);
  shelf.run(3);
  CHECK(Shelf::statuses({first, second, gone, other}) == Statuses{200, 200, 0, 200});
  CHECK(second->lease == first->lease);
  CHECK(shelf.started == "ab");
  CHECK(shelf.ask("a")->lease == first->lease);  // at once
}

TEST_CASE("nothing is loaded for who has gone", "[llmserve]") {
  Shelf shelf({.waiting = 4, .patience = kLongPatience});
  shelf.hold_loads(true);
  const auto first = shelf.ask("a");
  shelf.await_load();
  shelf.ask("b")->owner.reset();
  first->owner.reset();  // its load is under way
  const auto last = shelf.ask("c");
  shelf.hold_loads(false);
  shelf.run(3);
  CHECK(Shelf::statuses({first, last}) == Statuses{0, 200});
  CHECK(shelf.started == "ac");
  CHECK(shelf.loaded() == "ac");
}

TEST_CASE("too many that wait are refused", "[llmserve]") {
  Shelf shelf({.waiting = 2, .patience = kLongPatience});
  shelf.hold_loads(true);
  const auto first = shelf.ask("a");
  const auto second = shelf.ask("b");
  CHECK(shelf.ask("a")->status == 429);
  second->owner.reset();
  const auto third = shelf.ask("c");
  CHECK(third->status == 0);
  shelf.hold_loads(false);
  shelf.run(4);
  CHECK(Shelf::statuses({first, third}) == Statuses{200, 200});
}

TEST_CASE("a failed load is told to all who wait, and tried again", "[llmserve]") {
  Shelf shelf({.waiting = 4, .patience = kLongPatience});
  shelf.fails = true;
  shelf.hold_loads(true);
  const auto first = shelf.ask("a");
  shelf.await_load();
  const auto second = shelf.ask("a");
  shelf.hold_loads(false);
  shelf.run(1);
  CHECK(Shelf::statuses({first, second}) == Statuses{500, 500});
  shelf.fails = false;
  const auto third = shelf.ask("a");
  shelf.run(2);
  CHECK(third->status == 200);
  CHECK(shelf.started == "aa");
}

TEST_CASE("idle models make room, those in use are waited for", "[llmserve]") {
  Shelf shelf({.bytes = 2, .waiting = 4, .patience = kLongPatience});
  auto a = shelf.ask("a");
  shelf.run(2);
  auto b = shelf.ask("b");
  shelf.run(2);
  auto c = shelf.ask("c");
  shelf.run(1);
  CHECK(c->status == 0);
  CHECK(shelf.loaded() == "ab");
  const auto again = shelf.ask("b");  // what is loaded is given to others meanwhile
  CHECK(again->status == 200);
  a->lease.reset();
  shelf.shelf().proceed();
  shelf.run(1);
  CHECK(c->status == 200);
  CHECK(shelf.loaded() == "bc");
  b->lease.reset();
  again->lease.reset();
  c->lease.reset();
  shelf.ask("b");
  const auto last = shelf.ask("a");
  shelf.run(2);
  CHECK(last->status == 200);
  CHECK(shelf.loaded() == "ab");
}

TEST_CASE("who waits too long for room is refused", "[llmserve]") {
  Shelf shelf({.bytes = 1, .waiting = 4, .patience = std::chrono::milliseconds(20)});
  const auto a = shelf.ask("a");
  shelf.run(2);
  const auto b = shelf.ask("b");
  const auto c = shelf.ask("c");
  shelf.run(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  shelf.shelf().proceed();
  CHECK(Shelf::statuses({b, c}) == Statuses{503, 503});
  CHECK(shelf.loaded() == "a");
  const auto later = shelf.ask("b");  // whose file may have changed
  shelf.run(1);
  CHECK(shelf.planned == "abb");
}

TEST_CASE("the first model is loaded at once, if it fits", "[llmserve]") {
  Shelf shelf({.waiting = 4, .patience = kLongPatience});
  require_ok(shelf.shelf().load_first());
  CHECK(shelf.loaded() == "a");
  CHECK(shelf.ask("a")->status == 200);
  Shelf small({.bytes = 0, .waiting = 4, .patience = kLongPatience});
  must_fail(small.shelf().load_first(), ErrorCode::kResource);
  const auto asked = small.ask("b");
  small.run(1);
  CHECK(asked->status == 507);
}

}  // namespace llm::test
