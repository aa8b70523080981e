// Many sequences through one executor: what is evaluated together, in which order, and what was
// computed anew or shared changes no bit of a sequence's logits.

#include <cstdlib>
#include <new>

#include "base/sha256.h"
#include "engine/engine.h"
#include "tests/support/embedded_model.h"
#include "tests/support/test.h"

namespace {

thread_local std::size_t n_allocations_left = SIZE_MAX;  // the one after these is refused

}  // namespace

void* operator new(std::size_t size) {
  void* const made = n_allocations_left == 0 ? nullptr : std::malloc(size);
  if (made == nullptr) throw std::bad_alloc();
  if (n_allocations_left != SIZE_MAX) --n_allocations_left;
  return made;
}
void operator delete(void* made) noexcept { std::free(made); }
void operator delete(void* made, std::size_t) noexcept { std::free(made); }

namespace llm::test {
namespace {

using Ids = std::vector<TokenId>;

std::shared_ptr<Executor> executor_of(const std::shared_ptr<const Model>& model,
                                      const ExecutorOptions& options) {
  return require_ok(Executor::create(model, options));
}

std::unique_ptr<Sequence> open(const std::shared_ptr<Executor>& executor,
                               const SequenceOptions& options = {}) {
  return require_ok(Executor::open(executor, options));
}

Ids random_ids(std::size_t n, std::size_t n_vocab, std::mt19937& random) {
  Ids ids(n);
  for (TokenId& id : ids) id = static_cast<TokenId>(random() % n_vocab);
  return ids;
}

std::string solo_hash(const std::shared_ptr<const Model>& model, const Ids& ids,
                      KvType kv = KvType::kF16) {
  auto sequence = require_ok(open_sequence(model, {.context = ids.size(), .kv = kv}));
  const auto logits = require_ok(sequence->evaluate(ids, LogitRows::kAll));
  return sha256_hex(std::as_bytes(logits));
}

/// Keys and values of the first page, in every layer.
std::vector<std::byte> first_page(const Sequence& sequence) {
  const KvPool& pool = sequence.executor().pool();
  const std::size_t row = pool.row_bytes(0);
  std::vector<std::byte> out;
  for (std::size_t layer = 0; layer < sequence.model().config().n_layers; ++layer) {
    for (std::size_t position = 0; position < KvPool::kPagePositions; ++position) {
      out.resize(out.size() + 2 * row);
      const auto both = std::span(out).last(2 * row);
      sequence.cache().load_raw(layer, position, both.first(row), both.last(row));
    }
  }
  return out;
}

/// A text on its way through an executor.
struct Traveller {
  Ids ids;
  std::unique_ptr<Sequence> sequence;
  Sha256 hash;
  std::size_t n_hashed = 0;  ///< leading tokens, also after its pages were given back
  std::size_t left() const { return ids.size() - n_hashed; }

  /// Up to `wanted` tokens whose logits were not seen; before them, without, those that were.
  Segment next(std::size_t wanted) const {
    const std::size_t at = sequence->position();
    const auto rest = std::span(ids).subspan(at);
    if (at < n_hashed) return {sequence.get(), rest.first(n_hashed - at), LogitRows::kNone};
    return {sequence.get(), rest.first(std::min(wanted, left())), LogitRows::kAll};
  }
};

/// Feeds random numbers of random texts random parts, until all are done: decoding and prefilling
/// at once. Of the texts that wait, all but `n_held` give back their pages.
/// @return hex hashes over all logits
std::vector<std::string> travel(std::vector<Traveller>& all, Executor& executor,
                                std::mt19937& random, std::size_t most_together,
                                std::size_t n_held) {
  std::vector<Traveller*> open;
  for (Traveller& t : all) open.push_back(&t);
  while (!open.empty()) {
    std::shuffle(open.begin(), open.end(), random);
    const std::size_t together = std::min<std::size_t>(1 + random() % most_together, open.size());
    for (std::size_t i = std::max(together, n_held); i < open.size(); ++i)
      open[i]->sequence->truncate(0);
    std::vector<Segment> segments;
    for (std::size_t i = 0; i < together; ++i)
      segments.push_back(open[i]->next(random() % 2 == 0 ? 1 : 1 + random() % 70));
    require_ok(executor.evaluate(segments));
    for (std::size_t i = 0; i < together; ++i) {
      open[i]->hash.update(std::as_bytes(segments[i].logits));
      open[i]->n_hashed = open[i]->sequence->position();
    }
    std::erase_if(open, [](const Traveller* t) {
      if (t->left() > 0) return false;
      t->sequence->truncate(0);
      return true;
    });
  }
  std::vector<std::string> hashes;
  for (Traveller& t : all) hashes.push_back(t.hash.hex());
  return hashes;
}

}  // namespace

TEST_CASE("64 sequences in random mixes, computed anew: each equals its solo run", "[executor]") {
  const auto model = embedded(2);
  std::mt19937 random(20261122);
  // Far fewer pages than sequences, which want up to 2 each.
  const std::size_t n_held = 9;
  const std::size_t n_pages = 2 * n_held;
  const KvType kv = GENERATE(KvType::kF16, KvType::kQ8);
  const auto executor =
      executor_of(model, {.context = 300, .kv = kv, .batch = 96, .kv_pages = n_pages});
  std::vector<Traveller> all(effort<std::size_t>(64, 8));
  std::vector<std::string> expected;
  for (Traveller& t : all) {
    const std::size_t length = random() % 4 == 0 ? 200 + random() % 100 : 1 + random() % 60;
    t.ids = random_ids(length, model->config().n_vocab, random);
    t.sequence = open(executor);
    expected.push_back(solo_hash(model, t.ids, kv));
  }
  REQUIRE(travel(all, *executor, random, 9, n_held) == expected);
  REQUIRE(executor->pool().pages_in_use() <= n_pages);
  all.clear();
  REQUIRE(executor->pool().pages_in_use() == 0);
}

TEST_CASE("shared prefixes: equal pages, equal logits", "[executor]") {
  const auto model = embedded(2);
  const std::size_t n_vocab = model->config().n_vocab;
  std::mt19937 random(7);
  const Ids prefix = random_ids(300, n_vocab, random);
  const KvType kv = GENERATE(KvType::kF16, KvType::kQ8);
  for (const std::size_t n_pages : {40, 6}) {  // 6: computed anew, and adopted again
    const auto executor =
        executor_of(model, {.context = 400, .kv = kv, .batch = 64, .kv_pages = n_pages});
    std::vector<Traveller> all(effort<std::size_t>(12, 3));
    std::vector<std::string> expected;
    for (Traveller& t : all) {
      t.ids = prefix;
      const Ids own = random_ids(1 + random() % 60, n_vocab, random);
      t.ids.insert(t.ids.end(), own.begin(), own.end());
      t.sequence = open(executor, {.share_prefix = true});
    }
    // One text first, so that the others find its page.
    REQUIRE(all[0].sequence->evaluate(prefix, LogitRows::kNone).ok());
    all[0].sequence->truncate(0);
    for (Traveller& t : all) {
      const auto ids = std::span(t.ids);
      REQUIRE(t.sequence->evaluate(ids.first(280), LogitRows::kNone).ok());
      const auto logits = require_ok(t.sequence->evaluate(ids.subspan(280), LogitRows::kAll));
      const auto solo = require_ok(open_sequence(model, {.context = 400, .kv = kv}));
      const auto alone = require_ok(solo->evaluate(ids, LogitRows::kAll));
      expected.push_back(sha256_hex(std::as_bytes(alone)));
      REQUIRE(same_bits(logits, alone.last(logits.size())));
      REQUIRE(first_page(*t.sequence) == first_page(*solo));
      if (n_pages < 40) t.sequence->truncate(0);
    }
    REQUIRE(executor->pool().pages_shared() >= all.size());
    if (n_pages == 40) REQUIRE(executor->pool().pages_in_use() == 1 + all.size());
    for (Traveller& t : all) t.sequence->truncate(0);
    REQUIRE(travel(all, *executor, random, 3, n_pages == 40 ? all.size() : 3) == expected);
  }
}

TEST_CASE("rows of the final norm are the definition's, whatever is evaluated with them",
          "[executor]") {
  const auto model = embedded(GENERATE(1, 2));
  std::mt19937 random(3);
  const Ids ids = random_ids(effort<std::size_t>(80, 40), model->config().n_vocab, random);
  const std::size_t d_model = model->config().d_model;
  const std::size_t n_vocab = model->config().n_vocab;
  const auto definition =
      require_ok(open_sequence(model, {.context = 200, .batch = 64}, {.reference = true}));
  Segment all{definition.get(), ids, LogitRows::kAll, true};
  REQUIRE(definition->executor().evaluate({&all, 1}).ok());
  REQUIRE(all.logits.size() == ids.size() * d_model);
  const auto alone = require_ok(open_sequence(model, {.context = 200}));
  const auto logits = require_ok(alone->evaluate(ids, LogitRows::kAll));
  for (const std::size_t batch : {200, 7}) {
    const auto executor = executor_of(model, {.context = 200, .batch = batch, .kv_pages = 5});
    std::vector<std::unique_ptr<Sequence>> sequences;
    for (int i = 0; i < 5; ++i) sequences.push_back(open(executor));
    for (std::size_t at = 0; at < ids.size();) {
      const std::size_t n = std::min<std::size_t>(1 + random() % 20, ids.size() - at);
      std::vector<Segment> segments;
      for (std::size_t i = 0; i < sequences.size(); ++i) {
        const LogitRows rows =
            std::array{LogitRows::kNone, LogitRows::kLast, LogitRows::kAll}[random() % 3];
        segments.push_back({sequences[i].get(), std::span(ids).subspan(at, n), rows, i % 2 == 0});
      }
      std::shuffle(segments.begin(), segments.end(), random);
      REQUIRE(executor->evaluate(segments).ok());
      at += n;
      for (const Segment& segment : segments) {
        const std::size_t width = segment.normed ? d_model : n_vocab;
        const std::size_t n_rows = segment.rows == LogitRows::kAll    ? n
                                   : segment.rows == LogitRows::kLast ? 1
                                                                      : 0;
        REQUIRE(segment.logits.size() == n_rows * width);
        const auto expected = (segment.normed ? all.logits : logits).first(at * width);
        REQUIRE(std::ranges::equal(segment.logits, expected.last(n_rows * width)));
      }
    }
  }
}

TEST_CASE("one pass serves all sequences that fit", "[executor]") {
  const auto model = embedded(2);
  const auto executor = executor_of(model, {.context = 64, .batch = 40, .kv_pages = 20});
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<Segment> segments;
  const Ids ids = {1, 2};
  for (int i = 0; i < 20; ++i) {
    sequences.push_back(open(executor));
    segments.push_back({sequences.back().get(), ids, LogitRows::kLast});
  }
  REQUIRE(executor->evaluate(segments).ok());
  REQUIRE(executor->passes() == 1);
  for (const Segment& segment : segments)
    REQUIRE(std::ranges::equal(segment.logits, segments[0].logits));
}

TEST_CASE("after an error every sequence is where it was", "[executor]") {
  const auto model = embedded(2);
  const auto executor = executor_of(model, {.context = 300, .kv_pages = 1});
  const auto a = open(executor);
  const auto b = open(executor, {.context = 8});
  const Ids ids = {1, 2, 3};
  REQUIRE(a->evaluate(ids, LogitRows::kNone).ok());

  const auto refused = [&](const Ids& of_b, ErrorCode code) {
    Segment both[] = {{a.get(), ids, LogitRows::kLast}, {b.get(), of_b, LogitRows::kLast}};
    must_fail(executor->evaluate(both), code);
    REQUIRE(a->position() == 3);
    REQUIRE(b->position() == 0);
  };
  refused({5, 99999}, ErrorCode::kUsage);
  refused(Ids(9, 5), ErrorCode::kResource);

  // One page cannot hold 257 positions.
  const Error full = must_fail(a->evaluate(Ids(257, 4), LogitRows::kLast), ErrorCode::kResource);
  REQUIRE(full.field == "KV cache");
  REQUIRE(a->position() == 3);
  const auto logits = require_ok(a->evaluate(ids, LogitRows::kAll));
  auto alone = open_sequence(model, {.context = 300});
  REQUIRE((*alone)->evaluate(ids, LogitRows::kNone).ok());
  REQUIRE(std::ranges::equal(logits, *(*alone)->evaluate(ids, LogitRows::kAll)));
}

TEST_CASE("when pages run out the call is refused, and no other sequence loses any", "[executor]") {
  const auto executor = executor_of(embedded(), {.context = 600, .kv_pages = 2});
  const auto first = open(executor);
  const auto second = open(executor);
  const auto third = open(executor);
  const Ids ids = {1, 5, 7};
  REQUIRE(first->evaluate(ids, LogitRows::kNone).ok());
  // Of a call that needs two pages more neither sequence is evaluated.
  Segment both[] = {{second.get(), ids, LogitRows::kLast}, {third.get(), ids, LogitRows::kLast}};
  CHECK(must_fail(executor->evaluate(both)).field == "KV cache");
  CHECK(first->position() == 3);
  CHECK(second->position() == 0);
  CHECK(executor->pool().pages_in_use() == 1);
  first->truncate(0);
  CHECK(executor->evaluate(both).ok());
  CHECK(executor->pool().pages_in_use() == 2);
}

TEST_CASE("a sequence for which memory was short while it adopted a prefix is empty",
          "[executor][bad_input]") {
  const auto model = embedded(2);
  std::mt19937 random(12);
  const Ids ids = random_ids(300, model->config().n_vocab, random);
  const Ids other = random_ids(280, model->config().n_vocab, random);
  const std::string expected = solo_hash(model, other);
  const auto executor = executor_of(model, {.context = 300, .kv_pages = 20});
  REQUIRE(open(executor, {.share_prefix = true})->evaluate(ids, LogitRows::kNone).ok());
  std::size_t n_refused = 0;
  for (bool is_refused = true; is_refused; n_refused += is_refused) {
    CAPTURE(n_refused);
    auto sequence = open(executor, {.share_prefix = true});
    n_allocations_left = n_refused;
    try {
      sequence->adopt(ids);
      is_refused = false;
    } catch (const std::bad_alloc&) {
    }
    n_allocations_left = SIZE_MAX;
    if (!is_refused) break;
    REQUIRE(sequence->position() == 0);
    const auto logits = require_ok(sequence->evaluate(other, LogitRows::kAll));
    REQUIRE(sha256_hex(std::as_bytes(logits)) == expected);
  }
  CHECK(n_refused > 3);
}

TEST_CASE("what is stored is taken over at any chunk, and what all is there has no pass",
          "[executor]") {
  const auto model = embedded(2);
  std::mt19937 random(11);
  const KvType kv = GENERATE(KvType::kF16, KvType::kQ8);
  for (const std::size_t n : {256, 512, 700}) {
    CAPTURE(n);
    const Ids ids = random_ids(n, model->config().n_vocab, random);
    auto alone = open_sequence(model, {.context = 800, .kv = kv});
    const auto expected = (*alone)->evaluate(ids, LogitRows::kLast);
    const auto executor = executor_of(model, {.context = 800, .kv = kv, .kv_pages = 20});
    const auto owner = open(executor, {.share_prefix = true});
    REQUIRE(std::ranges::equal(*owner->evaluate(ids, LogitRows::kLast), *expected));

    // The last token's logits are wanted, so its page is computed. (Others lie where they will be.)
    const auto between = open(executor);
    REQUIRE(between->evaluate(Ids{1, 2}, LogitRows::kLast).ok());
    const auto at_once = open(executor, {.share_prefix = true});
    REQUIRE(std::ranges::equal(*at_once->evaluate(ids, LogitRows::kLast), *expected));
    const auto second = open(executor, {.share_prefix = true});
    // Whole pages are found while their owner goes on, also a part of one.
    const std::size_t found = std::min(n - 1, n / 256 * 256);
    REQUIRE(second->adopt(std::span(ids).first(n - 1)) == found);
    const auto rest = std::span(ids).subspan(second->position());
    REQUIRE(std::ranges::equal(*second->evaluate(rest, LogitRows::kLast), *expected));

    // In chunks that end within pages: the page that was begun is given back for the whole one.
    const auto third = open(executor, {.share_prefix = true});
    const auto before = executor->pool().pages_shared();
    REQUIRE(third->evaluate(std::span(ids).first(100), LogitRows::kLast).ok());
    REQUIRE(third->adopt(std::span(ids).first(n - 1)) == found);
    const auto third_rest = std::span(ids).subspan(third->position());
    REQUIRE(std::ranges::equal(*third->evaluate(third_rest, LogitRows::kLast), *expected));
    REQUIRE(executor->pool().pages_shared() == before + 1 + KvGroups::pages_for(found));

    // Without logits all of a chunk may be there: no pass is run.
    const auto fourth = open(executor, {.share_prefix = true});
    const auto passes = executor->passes();
    REQUIRE(fourth->evaluate(std::span(ids).first(256), LogitRows::kNone).ok());
    REQUIRE(fourth->position() == 256);
    REQUIRE(executor->passes() == passes);
    if (n > 256) {
      const auto logits = fourth->evaluate(std::span(ids).subspan(256), LogitRows::kLast);
      REQUIRE(std::ranges::equal(*logits, *expected));
    }
  }
}

TEST_CASE("pages are shared only where it is asked for", "[executor]") {
  const auto model = embedded(2);
  const auto executor = executor_of(model, {.context = 300, .kv_pages = 4});
  std::mt19937 random(5);
  const Ids ids = random_ids(300, model->config().n_vocab, random);
  const auto owner = open(executor, {.share_prefix = true});
  REQUIRE(owner->evaluate(ids, LogitRows::kLast).ok());
  const auto alone = open(executor);
  REQUIRE(alone->evaluate(ids, LogitRows::kLast).ok());
  CHECK(executor->pool().pages_shared() == 0);
  CHECK(alone->cache().pages(0)[0] != owner->cache().pages(0)[0]);
}

TEST_CASE("an open sequence costs its history alone", "[executor]") {
  const auto executor = executor_of(embedded(), {.kv_pages = 2});
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (int i = 0; i < 1000; ++i) sequences.push_back(open(executor));
  REQUIRE(executor->pool().pages_in_use() == 0);
  REQUIRE(sequences[0]->evaluate(Ids{1, 5, 7}, LogitRows::kNone).ok());
  REQUIRE(executor->pool().pages_in_use() == 1);
}

}  // namespace llm::test
