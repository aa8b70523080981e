// Keys and values behind sliding windows are given back, and no bit depends on it: texts of several
// windows and pages against one that was evaluated in one pass, which gives back nothing.

#include "engine/batching/batch_runner.h"
#include "engine/generation/speculation_policy.h"
#include "tests/support/test.h"
#include "tests/support/tiny_model.h"

namespace llm::test {
namespace {

using Ids = std::vector<TokenId>;
using Rows = std::vector<float>;

struct Family {
  const char* architecture;
  std::size_t n_layers;
  std::uint32_t window;
  std::size_t n_groups;
};
// All layers, every other, five of six; groups of two layers, two and one; of four layers, of which
// two read what the others keep.
constexpr Family kFamilies[] = {{"llama", 2, 5, 1},
                                {"gpt-oss", 4, 300, 2},
                                {"gemma3", 7, 40, 7},
                                {"phi3", 2, 257, 1},
                                {"gemma4", 4, 40, 2}};

class Windows {
 public:
  explicit Windows(const Family& family, int threads = 2) {
    TinyGguf tiny =
        TinyGguf::llama({.n_layers = family.n_layers, .architecture = family.architecture});
    const std::string prefix = family.architecture;
    tiny.set_u32(prefix + ".context_length", 4096);
    tiny.set_u32(prefix + ".attention.sliding_window", family.window);
    model = loaded(tiny, {.threads = threads});
    groups = KvGroups(model->config(), KvType::kF16);
    REQUIRE(groups.size() == family.n_groups);
  }

  Ids text(std::size_t n, unsigned seed = 1) const {
    std::mt19937 random(seed);
    Ids ids(n);
    for (TokenId& id : ids) id = static_cast<TokenId>(random() % model->config().n_vocab);
    return ids;
  }

  /// Rows of logits of a text in one pass.
  Rows at_once(const Ids& ids, KvType kv = KvType::kF16, bool reference = false) const {
    const auto sequence = require_ok(open_sequence(
        model, {.context = ids.size(), .kv = kv, .batch = ids.size()}, {.reference = reference}));
    const auto rows = require_ok(sequence->evaluate(ids, LogitRows::kAll));
    REQUIRE(sequence->cache().n_pages() == groups.size() * KvGroups::pages_for(ids.size()));
    return {rows.begin(), rows.end()};
  }

  /// Pages that a sequence of n positions holds whose last pass began at `begin`.
  std::size_t pages_held(std::size_t begin, std::size_t n) const {
    std::size_t pages = 0;
    for (std::size_t g = 0; g < groups.size(); ++g)
      pages += KvGroups::pages_for(n) -
               KvGroups::first_page(groups.window(g), KvGroups::kept_from(begin));
    return pages;
  }

  std::shared_ptr<const Model> model;
  KvGroups groups;
};

/// Evaluates what follows position() in calls of `step` tokens. @return whether the rows are those
/// of `expected`
bool goes_on(Sequence& sequence, const Ids& ids, std::size_t step, const Rows& expected) {
  const std::size_t n_vocab = sequence.n_vocab();
  while (sequence.position() < ids.size()) {
    const std::size_t at = sequence.position();
    const std::size_t n = std::min(step, ids.size() - at);
    const auto rows = require_ok(sequence.evaluate(std::span(ids).subspan(at, n), LogitRows::kAll));
    if (!same_bits(rows, std::span(expected).subspan(at * n_vocab, n * n_vocab))) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("windows: equal bits and few pages, however a text is cut", "[windows]") {
  for (const Family& family : kFamilies) {
    for (const int threads : {1, 3}) {
      const Windows windows(family, threads);
      const Ids ids = windows.text(900);
      for (const KvType kv : kKvTypes) {
        if (threads == 3 && kv != KvType::kF16) continue;
        const Rows expected = windows.at_once(ids, kv);
        for (const std::size_t step : {1, 33, 256}) {
          if (threads == 3 && step == 1) continue;  // 900 passes, each of dozens of waits
          const std::size_t batch = step == 256 ? 100 : step;
          CAPTURE(family.architecture, threads, kv_name(kv), step);
          const auto sequence = require_ok(
              open_sequence(windows.model, {.context = ids.size(), .kv = kv, .batch = batch}));
          REQUIRE(goes_on(*sequence, ids, step, expected));
          const std::size_t held = sequence->cache().n_pages();
          REQUIRE(held <= windows.groups.most_pages(ids.size(), batch));
          if (step > 1) continue;
          REQUIRE(held == windows.pages_held(ids.size() - 1, ids.size()));
          REQUIRE(held < windows.groups.size() * KvGroups::pages_for(ids.size()));
        }
      }
    }
  }
}

TEST_CASE("windows: the definition gives back pages, too", "[windows]") {
  for (const Family& family : std::span(kFamilies).first(2)) {
    CAPTURE(family.architecture);
    const Windows windows(family);
    const Ids ids = windows.text(650);
    const Rows expected = windows.at_once(ids);
    REQUIRE(windows.at_once(ids, KvType::kF16, true) == expected);
    const auto sequence = require_ok(
        open_sequence(windows.model, {.context = ids.size(), .batch = 50}, {.reference = true}));
    REQUIRE(goes_on(*sequence, ids, 300, expected));
    REQUIRE(sequence->cache().n_pages() == windows.pages_held(600, 650));
  }
}

TEST_CASE("windows: pages in use stay bounded while a text grows", "[windows]") {
  const Windows windows({"llama", 2, 5, 1});
  const auto sequence = require_ok(open_sequence(windows.model, {.context = 4000}));
  const Ids ids = windows.text(4000);
  std::size_t most = 0;
  for (std::size_t at = 0; at < ids.size(); at += 20) {
    REQUIRE(sequence->evaluate(std::span(ids).subspan(at, 20), LogitRows::kNone).ok());
    most = std::max(most, sequence->executor().pool().pages_in_use());
  }
  REQUIRE(most == 2);
}

TEST_CASE("windows: a text that goes back is computed anew where pages are gone", "[windows]") {
  for (const Family& family : kFamilies) {
    const Windows windows(family);
    const Ids ids = windows.text(1100);
    const Rows expected = windows.at_once(ids);
    std::size_t n_kept = 0;
    std::size_t n_lost = 0;
    for (const bool share_prefix : {false, true}) {
      const auto sequence = require_ok(open_sequence(
          windows.model, {.context = ids.size(), .batch = 128}, {.share_prefix = share_prefix}));
      REQUIRE(goes_on(*sequence, ids, 64, expected));
      for (const std::size_t n : {1099, 1088, 1024, 700, 1099, 1023, 256, 3}) {
        CAPTURE(family.architecture, share_prefix, n);
        const std::size_t reusable = sequence->reusable(n);
        REQUIRE((reusable == n || reusable == 0));
        ++(reusable == n ? n_kept : n_lost);
        sequence->truncate(n);
        REQUIRE(sequence->position() == n);
        REQUIRE(goes_on(*sequence, ids, n % 2 == 0 ? 40 : 128, expected));
      }
    }
    REQUIRE(n_kept > 1);
    REQUIRE(n_lost > 3);
  }
}

TEST_CASE("windows: tokens on trial are taken back without computing anything anew", "[windows]") {
  for (const Family& family : kFamilies) {
    CAPTURE(family.architecture);
    const Windows windows(family);
    const Ids ids = windows.text(640);
    const Rows expected = windows.at_once(ids);
    const auto sequence = require_ok(open_sequence(windows.model, {.context = ids.size() + 40}));
    const Ids trial = windows.text(7, 2);
    REQUIRE(sequence->evaluate(std::span(ids).first(500), LogitRows::kNone).ok());
    for (std::size_t at = 500; at < ids.size(); ++at) {
      Ids tokens = {ids[at]};
      tokens.insert(tokens.end(), trial.begin(), trial.end());
      const auto rows = require_ok(sequence->evaluate(tokens, LogitRows::kAll));
      const std::size_t n_vocab = sequence->n_vocab();
      REQUIRE(same_bits(rows.first(n_vocab), std::span(expected).subspan(at * n_vocab, n_vocab)));
      REQUIRE(sequence->reusable(at + 1) == at + 1);
      sequence->truncate(at + 1);
    }
    REQUIRE(sequence->executor().passes() == 1 + ids.size() - 500);
  }
  static_assert(KvGroups::kSlack > SpeculationPolicy::kMost);
}

TEST_CASE("windows: prefixes are taken over as far as their pages are there", "[windows]") {
  for (const Family& family : kFamilies) {
    const Windows windows(family);
    const Ids ids = windows.text(1040);
    const Rows expected = windows.at_once(ids);
    const std::size_t most = windows.groups.most_pages(ids.size(), 64);
    for (const std::size_t n_pages : {most, most + 1, 5 * windows.groups.size() + most}) {
      CAPTURE(family.architecture, n_pages);
      auto executor = require_ok(Executor::create(
          windows.model, {.context = ids.size(), .batch = 64, .kv_pages = n_pages}));
      const auto open = [&] {
        return require_ok(Executor::open(executor, {.share_prefix = true}));
      };
      REQUIRE(goes_on(*open(), Ids(ids.begin(), ids.begin() + 1025), 64, expected));
      for (const std::size_t n : {1040, 700}) {
        const auto second = open();
        const std::size_t adopted = second->adopt(std::span(ids).first(n - 1));
        CAPTURE(n, adopted);
        if (n_pages > most + 1) REQUIRE(adopted == std::min<std::size_t>(n - 1, 1025));
        REQUIRE(goes_on(*second, ids, 64, expected));
      }
    }
  }
}

TEST_CASE("windows: texts at once, preempted, sharing prefixes, are those alone", "[windows]") {
  for (const Family& family : kFamilies) {
    const Windows windows(family);
    const std::size_t n_new = 24;
    const std::size_t context = 900;
    std::vector<Ids> prompts;
    for (unsigned i = 0; i < 5; ++i) {
      prompts.push_back(windows.text(i % 2 == 0 ? 600 : 480 + 10 * i));
      if (i % 3 == 2) prompts.back()[300] = static_cast<TokenId>(i);
      prompts.back().back() = static_cast<TokenId>(20 + i);
    }
    std::vector<Rows> expected;
    const auto best = [](std::span<const float> row) {
      return static_cast<TokenId>(std::ranges::max_element(row) - row.begin());
    };
    for (const Ids& prompt : prompts) {
      const auto sequence = require_ok(open_sequence(windows.model, {.context = context}));
      Rows rows;
      Ids next = prompt;
      for (std::size_t i = 0; i < n_new; ++i) {
        const auto row = require_ok(sequence->evaluate(next, LogitRows::kLast));
        rows.insert(rows.end(), row.begin(), row.end());
        next = {best(row)};
      }
      expected.push_back(std::move(rows));
    }
    for (const bool share_prefix : {false, true}) {
      SchedulerOptions options{.step_tokens = 64,
                               .parallel = 6,
                               .queue = 100,
                               .context = context,
                               .kv_groups = windows.groups};
      options.kv_pages = 2 * Scheduler::pages_for(options, 640) + 1;
      CAPTURE(family.architecture, share_prefix);
      auto executor = require_ok(Executor::create(
          windows.model, {.context = context, .batch = 64, .kv_pages = options.kv_pages}));
      BatchRunner runner(executor, {.share_prefix = share_prefix});
      Scheduler scheduler = require_ok(Scheduler::create(options));
      std::vector<Ids> tokens = prompts;
      std::vector<Rows> rows(prompts.size());
      for (std::size_t i = 0; i < prompts.size(); ++i)
        REQUIRE(scheduler.submit(i, prompts[i].size(), n_new) == Admission::kAccepted);
      const auto stored = [&](RequestId id, std::size_t n_stored) {
        const auto leading = std::span(tokens[id]).first(tokens[id].size() - 1);
        return runner.adopt(id, n_stored, leading).n_stored;
      };
      const auto next = [&] { return share_prefix ? scheduler.next(stored) : scheduler.next(); };
      for (Step step = next(); !step.parts.empty(); step = next()) {
        require_ok(runner.run(
            step, [&](RequestId id) { return std::span<const TokenId>(tokens[id]); },
            [&](const StepPart& part, std::span<const float> row) -> Status {
              rows[part.id].insert(rows[part.id].end(), row.begin(), row.end());
              tokens[part.id].push_back(best(row));
              return Ok{};
            }));
        REQUIRE(executor->pool().pages_in_use() <= scheduler.pages_in_use());
        for (const RequestId id : scheduler.complete()) runner.close(id);
      }
      REQUIRE(rows == expected);
      REQUIRE(executor->pool().pages_in_use() == 0);
      if (share_prefix) REQUIRE(executor->pool().pages_shared() > 0);
    }
  }
}

TEST_CASE("windows: more texts are admitted", "[windows]") {
  const Windows windows({"gemma3", 12, 40, 6});
  REQUIRE(windows.groups.page_bytes() == 2 * windows.groups.memory(0).bytes());
  // Room for the whole contexts of two texts, if no window were known.
  SchedulerOptions options{.step_tokens = 256,
                           .parallel = 50,
                           .queue = 100,
                           .context = 4096,
                           .kv_pages = 2 * 6 * 16,
                           .kv_groups = windows.groups};
  const auto admitted = [&] {
    Scheduler scheduler = require_ok(Scheduler::create(options));
    for (RequestId id = 0; id < 30; ++id)
      REQUIRE(scheduler.submit(id, 3000, 800) == Admission::kAccepted);
    std::size_t most = 0;
    for (int i = 0; i < 600; ++i) {
      scheduler.next();
      most = std::max(most, scheduler.n_running());
      scheduler.complete();
    }
    return most;
  };
  REQUIRE(Scheduler::pages_for(options, 3000) == 12 + 5 * 3);
  REQUIRE(admitted() == 2 * 6 * 16 / (12 + 5 * 3));
  options.kv_groups = {};
  options.kv_pages = 2 * 16;
  REQUIRE(admitted() == 2);
}

}  // namespace llm::test
