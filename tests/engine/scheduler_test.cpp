// The scheduler by itself: what it promises in every step of random workloads, and small cases by
// hand. No model, no clock.

#include "engine/batching/scheduler.h"

#include "engine/batching/step_pacer.h"
#include "engine/state/kv_groups.h"
#include "tests/support/test.h"

namespace llm {
namespace {

using RequestIds = std::vector<RequestId>;
using Parts = std::vector<StepPart>;
using test::effort;

Scheduler scheduler_of(const SchedulerOptions& options) {
  return test::require_ok(Scheduler::create(options));
}

RequestIds ids_of(const Step& step) {
  RequestIds ids;
  for (const StepPart& part : step.parts) ids.push_back(part.id);
  return ids;
}

/// A request as one who watches the scheduler from outside knows it.
struct Watched {
  std::size_t n_tokens;
  std::size_t most_tokens;
  std::size_t stored = 0;
  bool runs = false;
  bool is_long = false;
};

/// All, half or none of what is proposed.
std::size_t accepted_of(const StepPart& part) {
  return part.n_proposed - part.n_proposed * (part.id % 3) / 2;
}

/// Watches a scheduler at random work and checks every promise of scheduler.h.
class Watcher {
 public:
  /// @param proposes  some tokens on trial, of which some are right
  Watcher(const SchedulerOptions& options, unsigned seed, bool proposes)
      : options_(options), scheduler_(scheduler_of(options)), random_(seed), proposes_(proposes) {}

  void run(std::size_t n_requests) {
    std::size_t steps = 0;
    while (n_submitted_ < n_requests || !live_.empty()) {
      REQUIRE(++steps < 1000000);
      while (n_submitted_ < n_requests && random_() % 3 == 0) submit();
      maybe_cancel();
      const Step step =
          proposes_ ? scheduler_.next({},
                                      [&](RequestId, std::size_t most) {
                                        return random_() % (std::min<std::size_t>(most, 9) + 1);
                                      })
                    : scheduler_.next();
      check(step);
      const bool late = maybe_cancel();  // while the step is under way
      complete(step, late);
    }
    REQUIRE(scheduler_.n_running() == 0);
    REQUIRE(scheduler_.n_waiting() == 0);
    REQUIRE(scheduler_.pages_in_use() == 0);
  }

  std::uint64_t preemptions() const { return scheduler_.preemptions(); }

  std::size_t finished = 0;
  std::size_t refused = 0;
  std::size_t cancelled = 0;
  std::size_t accepted = 0;

 private:
  void submit() {
    const RequestId id = 10 * n_submitted_++;
    const std::size_t n_prompt = 1 + random_() % 700;
    const std::size_t n_new = 1 + random_() % 300;
    const std::size_t waiting = scheduler_.n_waiting();
    const Admission admission = scheduler_.submit(id, n_prompt, n_new);
    const std::size_t most = n_prompt + n_new - 1;
    if (most > options_.context || KvGroups::pages_for(most) > options_.kv_pages) {
      REQUIRE(admission == Admission::kTooLong);
    } else if (waiting >= options_.queue) {  // more: preempted ones wait as well
      REQUIRE(admission == Admission::kQueueFull);
    } else {
      REQUIRE(admission == Admission::kAccepted);
      live_[id] = {n_prompt, n_prompt + n_new};
      return;
    }
    ++refused;
  }

  bool maybe_cancel() {
    if (live_.empty() || random_() % 40 != 0) return false;
    const auto victim = std::next(live_.begin(), random_() % live_.size());
    REQUIRE(scheduler_.cancel(victim->first));
    REQUIRE_FALSE(scheduler_.cancel(victim->first));
    live_.erase(victim);
    ++cancelled;
    return true;
  }

  void check(const Step& step) {
    for (const RequestId id : step.preempted) {
      REQUIRE(live_.at(id).runs);
      // The youngest of all that run.
      for (const auto& [other, watched] : live_) REQUIRE((!watched.runs || other <= id));
      live_.at(id).runs = false;
      live_.at(id).is_long = false;
      live_.at(id).stored = 0;
    }
    // The oldest run. A prompt that is longer than a step is long, until it is preempted.
    for (std::size_t i = 0; auto& [id, request] : live_) {
      if (i++ == scheduler_.n_running()) break;
      request.runs = true;
      request.is_long |= request.n_tokens - request.stored > options_.step_tokens;
    }
    std::size_t n_tokens = 0;
    std::set<RequestId> seen;
    for (const StepPart& part : step.parts) {
      const Watched& request = live_.at(part.id);
      REQUIRE(request.runs);
      REQUIRE(seen.insert(part.id).second);
      REQUIRE(part.n_tokens >= 1);
      REQUIRE(part.first == request.stored);
      REQUIRE(part.first + part.n_tokens <= request.n_tokens);
      REQUIRE(part.wants_logits == (part.first + part.n_tokens == request.n_tokens));
      n_tokens += part.n_tokens + part.n_proposed;
      if (part.n_proposed == 0) continue;
      // Beside no prompt, in the request's own pages, and never the last token it may have.
      for (const StepPart& other : step.parts) REQUIRE((other.n_tokens == 1));
      REQUIRE(KvGroups::pages_for(request.n_tokens + part.n_proposed) ==
              KvGroups::pages_for(request.n_tokens));
      REQUIRE(request.n_tokens + part.n_proposed < request.most_tokens);
    }
    REQUIRE(step.n_tokens == n_tokens);
    REQUIRE(n_tokens <= options_.step_tokens);
    REQUIRE((live_.empty() || n_tokens > 0));
    check_who_runs(step, seen);
  }

  void check_who_runs(const Step& step, const std::set<RequestId>& seen) const {
    std::size_t running = 0;
    std::size_t pages = 0;
    bool one_waits = false;
    for (const auto& [id, request] : live_) {
      if (!request.runs) {
        one_waits = true;
        continue;
      }
      REQUIRE_FALSE(one_waits);  // nobody overtakes
      ++running;
      pages += KvGroups::pages_for(request.n_tokens);
      const bool decodes = request.n_tokens - request.stored == 1;
      REQUIRE((!decodes || seen.contains(id)));
    }
    REQUIRE(running == scheduler_.n_running());
    REQUIRE(running <= options_.parallel);
    REQUIRE(pages == scheduler_.pages_in_use());
    REQUIRE(pages <= options_.kv_pages);
    // Nothing is left over that someone could have used: short prompts are read by the oldest
    // first, then long ones, of which two run.
    bool all_read = true;
    std::size_t n_long = 0;
    std::size_t n_long_tokens = 0;
    for (const bool is_long : {false, true}) {
      for (const auto& [id, request] : live_) {
        if (!request.runs || request.n_tokens - request.stored == 1) continue;
        if (request.is_long != is_long) continue;
        n_long += is_long ? 1 : 0;
        const auto part = std::ranges::find(step.parts, id, &StepPart::id);
        REQUIRE((part == step.parts.end() || all_read || (is_long && n_long == 1)));
        if (is_long && part != step.parts.end()) n_long_tokens += part->n_tokens;
        all_read = (all_read || (is_long && n_long == 1)) && part != step.parts.end() &&
                   part->wants_logits;
      }
      const std::size_t kept = is_long ? 0 : options_.step_tokens / 4;
      REQUIRE((all_read || step.n_tokens + kept >= options_.step_tokens));
    }
    REQUIRE(n_long <= 2);
    // A step that has room left for no long prompt was full before.
    REQUIRE((n_long == 0 || n_long_tokens > 0 || step.n_tokens == options_.step_tokens));
  }

  void complete(const Step& step, bool some_cancelled) {
    RequestIds stopped;
    RequestIds expected;
    for (const StepPart& part : step.parts) {
      const auto at = live_.find(part.id);
      if (at == live_.end()) {
        REQUIRE(some_cancelled);
        continue;
      }
      Watched& request = at->second;
      const std::size_t n_accepted = accepted_of(part);
      accepted += n_accepted;
      request.stored += part.n_tokens + n_accepted;
      if (!part.wants_logits) continue;
      request.n_tokens += n_accepted + 1;
      const bool stops = random_() % 200 == 0;
      if (stops) stopped.push_back(part.id);
      if (!stops && request.n_tokens < request.most_tokens) continue;
      expected.push_back(part.id);
      live_.erase(at);
      ++finished;
    }
    REQUIRE(scheduler_.complete(stopped, accepted_of) == expected);
  }

  SchedulerOptions options_;
  Scheduler scheduler_;
  std::mt19937 random_;
  bool proposes_;
  std::map<RequestId, Watched> live_;
  std::size_t n_submitted_ = 0;
};

}  // namespace

TEST_CASE("every promise of the scheduler holds in random workloads", "[serve]") {
  std::uint64_t preemptions = 0;
  std::size_t finished = 0;
  std::size_t refused = 0;
  std::size_t cancelled = 0;
  for (const SchedulerOptions& options :
       {SchedulerOptions{
            .step_tokens = 64, .parallel = 16, .queue = 20, .context = 900, .kv_pages = 12},
        SchedulerOptions{
            .step_tokens = 512, .parallel = 64, .queue = 1000, .context = 1000, .kv_pages = 9},
        SchedulerOptions{
            .step_tokens = 8, .parallel = 8, .queue = 5, .context = 1000, .kv_pages = 3},
        SchedulerOptions{
            .step_tokens = 16, .parallel = 1, .queue = 3, .context = 1000, .kv_pages = 100}}) {
    for (unsigned seed = 0; seed < 4; ++seed) {
      CAPTURE(options.step_tokens, options.parallel, options.kv_pages, seed);
      const bool proposes = seed % 2 == 1;
      Watcher watcher(options, seed, proposes);
      watcher.run(effort<std::size_t>(200, 40));
      REQUIRE((watcher.accepted > 0) == proposes);
      finished += watcher.finished;
      preemptions += watcher.preemptions();
      refused += watcher.refused;
      cancelled += watcher.cancelled;
    }
  }
  REQUIRE(finished > effort<std::size_t>(300, 60));
  REQUIRE(preemptions > effort<std::uint64_t>(20, 5));
  REQUIRE(refused > 20);
  REQUIRE(cancelled > 20);
}

TEST_CASE("nobody's next token waits for a long prompt", "[serve]") {
  Scheduler scheduler = scheduler_of(
      {.step_tokens = 100, .parallel = 4, .queue = 9, .context = 2000, .kv_pages = 20});
  scheduler.submit(1, 10, 50);
  REQUIRE(scheduler.next().parts == Parts{{1, 0, 10, true}});
  scheduler.submit(2, 250, 5);
  scheduler.submit(3, 30, 5);
  for (const Parts& parts : {Parts{{1, 10, 1, true}, {3, 0, 30, true}, {2, 0, 69, false}},
                             Parts{{1, 11, 1, true}, {3, 30, 1, true}, {2, 69, 98, false}},
                             Parts{{1, 12, 1, true}, {3, 31, 1, true}, {2, 167, 83, true}},
                             Parts{{1, 13, 1, true}, {2, 250, 1, true}, {3, 32, 1, true}}}) {
    scheduler.complete();
    REQUIRE(scheduler.next().parts == parts);
  }
}

TEST_CASE("beside decoding requests a long prompt takes what it may", "[serve]") {
  Scheduler scheduler = scheduler_of(
      {.step_tokens = 100, .parallel = 4, .queue = 9, .context = 2000, .kv_pages = 20});
  const auto next = [&](std::size_t most_long) {
    scheduler.complete();
    return scheduler.next({}, {}, most_long).parts;
  };
  scheduler.submit(1, 150, 5);
  REQUIRE(next(7) == Parts{{1, 0, 100, false}});  // nobody decodes
  REQUIRE(next(7) == Parts{{1, 100, 50, true}});  // long, and fits now
  scheduler.submit(2, 101, 5);
  REQUIRE(next(7) == Parts{{1, 150, 1, true}, {2, 0, 7, false}});
  scheduler.submit(3, 100, 5);  // short
  scheduler.submit(4, 900, 5);
  REQUIRE(next(7) == Parts{{1, 151, 1, true}, {3, 0, 74, false}, {2, 7, 7, false}});
  REQUIRE(next(90) == Parts{{1, 152, 1, true}, {3, 74, 26, true}, {2, 14, 73, false}});
  REQUIRE(next(20) ==
          Parts{{1, 153, 1, true}, {3, 100, 1, true}, {2, 87, 14, true}, {4, 0, 6, false}});
}

TEST_CASE("long prompts take what leaves a step twice as long as one without", "[serve]") {
  StepPacer pacer;
  CHECK(pacer.most_long() == 32);  // nothing is known
  for (int i = 0; i < 20; ++i) pacer.note(0, 16, 0.1);
  for (int i = 0; i < 20; ++i) pacer.note(200, 16, 0.3);  // a millisecond for each
  CHECK(pacer.most_long() == 100);
  for (int i = 0; i < 20; ++i) pacer.note(100, 16, 0.4);  // deep in the prompt
  CHECK(pacer.most_long() == 33);
  for (int i = 0; i < 20; ++i) pacer.note(0, 1, 0.01);  // 60 ms are not noticed
  CHECK(pacer.most_long() == 16);
  for (int i = 0; i < 20; ++i) pacer.note(10, 1, 1);
  CHECK(pacer.most_long() == 8);
}

TEST_CASE("what is stored already is in no step, and is asked for before each part", "[serve]") {
  Scheduler scheduler = scheduler_of(
      {.step_tokens = 100, .parallel = 4, .queue = 9, .context = 2000, .kv_pages = 20});
  std::map<RequestId, std::size_t> stored;
  std::vector<std::pair<RequestId, std::size_t>> asked;
  const auto next = [&] {
    asked.clear();
    return scheduler.next([&](RequestId id, std::size_t n_stored) {
      asked.emplace_back(id, n_stored);
      return std::max(stored[id], n_stored);
    });
  };
  using Asked = decltype(asked);
  scheduler.submit(1, 700, 5);
  stored[1] = 256;
  REQUIRE(next().parts == Parts{{1, 256, 100, false}});
  REQUIRE(asked == Asked{{1, 0}});
  REQUIRE(scheduler.pages_in_use() == 3);  // all of its own, shared or not
  scheduler.complete();
  stored[1] = 640;  // meanwhile others have stored more
  scheduler.submit(2, 512, 5);
  stored[2] = 511;
  REQUIRE(next().parts == Parts{{2, 511, 1, true}, {1, 640, 60, true}});
  REQUIRE(asked == Asked{{2, 0}, {1, 356}});
  scheduler.complete();
  REQUIRE(next().parts == Parts{{1, 700, 1, true}, {2, 512, 1, true}});
  REQUIRE(asked.empty());  // both decode
}

TEST_CASE("the youngest gives its pages and comes back before all who wait", "[serve]") {
  Scheduler scheduler =
      scheduler_of({.step_tokens = 600, .parallel = 4, .queue = 9, .context = 600, .kv_pages = 2});
  scheduler.submit(1, 255, 200);
  scheduler.submit(2, 100, 3);
  scheduler.submit(3, 1, 1);
  REQUIRE(ids_of(scheduler.next()) == RequestIds{1, 2});  // no page for 3
  scheduler.complete();
  REQUIRE(ids_of(scheduler.next()) == RequestIds{1, 2});  // 256 positions of 1
  scheduler.complete();
  const Step step = scheduler.next();  // the 257th
  REQUIRE(step.preempted == RequestIds{2});
  REQUIRE(step.parts == Parts{{1, 256, 1, true}});
  REQUIRE(scheduler.preemptions() == 1);
  REQUIRE(scheduler.complete(RequestIds{1}) == RequestIds{1});
  // From its start, with the two tokens that it has.
  REQUIRE(scheduler.next().parts == Parts{{2, 0, 102, true}, {3, 0, 1, true}});
  REQUIRE(scheduler.complete() == RequestIds{2, 3});
}

TEST_CASE("who cannot grow and is the youngest gives way itself", "[serve]") {
  Scheduler scheduler =
      scheduler_of({.step_tokens = 600, .parallel = 4, .queue = 9, .context = 512, .kv_pages = 2});
  scheduler.submit(1, 10, 100);
  scheduler.submit(2, 256, 100);
  REQUIRE(ids_of(scheduler.next()) == RequestIds{1, 2});
  scheduler.complete();
  const Step step = scheduler.next();
  REQUIRE(step.preempted == RequestIds{2});
  REQUIRE(step.parts == Parts{{1, 10, 1, true}});
  scheduler.complete();
  REQUIRE(scheduler.next().parts == Parts{{1, 11, 1, true}});
  REQUIRE(scheduler.complete(RequestIds{1}) == RequestIds{1});
  REQUIRE(scheduler.next().parts == Parts{{2, 0, 257, true}});
}

TEST_CASE("a cancelled request frees its place and pages in every phase", "[serve]") {
  const SchedulerOptions options{
      .step_tokens = 50, .parallel = 1, .queue = 2, .context = 500, .kv_pages = 2};
  Scheduler scheduler = scheduler_of(options);
  REQUIRE(scheduler.submit(1, 100, 5) == Admission::kAccepted);
  REQUIRE(scheduler.submit(2, 100, 5) == Admission::kAccepted);
  REQUIRE(scheduler.submit(3, 100, 5) == Admission::kQueueFull);
  REQUIRE(scheduler.cancel(2));  // it waits
  REQUIRE(scheduler.submit(4, 100, 5) == Admission::kAccepted);
  REQUIRE(ids_of(scheduler.next()) == RequestIds{1});
  REQUIRE(scheduler.cancel(1));  // its step is under way
  REQUIRE(scheduler.pages_in_use() == 0);
  REQUIRE(scheduler.complete(RequestIds{1}).empty());
  REQUIRE(ids_of(scheduler.next()) == RequestIds{4});
  scheduler.complete();
  REQUIRE(scheduler.cancel(4));  // half of its prompt is read
  REQUIRE(scheduler.pages_in_use() == 0);
  REQUIRE(scheduler.next().parts.empty());
  REQUIRE_FALSE(scheduler.cancel(4));
}

TEST_CASE("lengths that fit nowhere are refused, whatever their size", "[serve]") {
  Scheduler scheduler =
      scheduler_of({.step_tokens = 50, .parallel = 1, .queue = 2, .context = 600, .kv_pages = 2});
  const std::size_t huge = ~std::size_t{0};
  REQUIRE(scheduler.submit(1, huge, huge) == Admission::kTooLong);
  REQUIRE(scheduler.submit(2, 1, huge) == Admission::kTooLong);
  REQUIRE(scheduler.submit(3, 500, 14) == Admission::kTooLong);  // 513 positions
  REQUIRE(scheduler.submit(4, 500, 13) == Admission::kAccepted);
  REQUIRE(scheduler.submit(5, 512, 1) == Admission::kAccepted);
}

TEST_CASE("options that leave no room are refused by name", "[serve]") {
  const SchedulerOptions good{
      .step_tokens = 8, .parallel = 8, .queue = 1, .context = 1, .kv_pages = 1};
  REQUIRE(Scheduler::create(good).ok());
  const auto refused = [&](auto member, std::size_t value, const std::string& part) {
    SchedulerOptions options = good;
    options.*member = value;
    test::must_fail(Scheduler::create(options), ErrorCode::kUsage, {part});
  };
  refused(&SchedulerOptions::step_tokens, 7, "step tokens: found 7, need one for each of 8");
  refused(&SchedulerOptions::parallel, 0, "parallel: found 0");
  refused(&SchedulerOptions::queue, 0, "queue: found 0");
  refused(&SchedulerOptions::context, 0, "context: found 0");
  refused(&SchedulerOptions::kv_pages, 0, "KV pages: found 0");
}

}  // namespace llm
