// Pages of keys and values: what is stored is read back, shared pages are never written, and every
// page finds its way back.

#include "engine/state/sequence_state.h"
#include "quant/formats/activations.h"
#include "quant/formats/half.h"
#include "tests/support/test.h"

namespace llm {
namespace {

constexpr std::size_t kPage = KvPool::kPagePositions;
constexpr std::size_t kRows = 2 * 10;  // two KV heads of ten dims

std::shared_ptr<KvPool> pool_of(std::size_t n_pages, KvType type = KvType::kF16,
                                const std::vector<std::size_t>& windows = {0, 0, 0}) {
  HyperParameters config{};
  config.n_layers = windows.size();
  for (const std::size_t window : windows)
    config.layers.push_back(
        {.mixer = AttentionSpec{.n_heads = 2, .n_kv_heads = 2, .head_dim = 10, .window = window}});
  return test::require_ok(KvPool::create(config, n_pages, type));
}

std::vector<TokenId> text(std::size_t n, TokenId first = 0) {
  std::vector<TokenId> tokens(n);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

/// A value that no other (layer, position, row) has.
float value_of(std::size_t layer, std::size_t position, std::size_t row) {
  return static_cast<float>(layer) * 1e3F + static_cast<float>(position) +
         static_cast<float>(row) / 32;
}

std::size_t layers_of(const SequenceState& cache) { return cache.pool().groups().n_layers(); }

void store(SequenceState& cache, std::size_t position, float shift = 0) {
  std::vector<float> k(kRows);
  std::vector<float> v(kRows);
  for (std::size_t layer = 0; layer < layers_of(cache); ++layer) {
    for (std::size_t r = 0; r < kRows; ++r) {
      k[r] = value_of(layer, position, r) + shift;
      v[r] = -k[r];
    }
    cache.store(layer, 0, position, k, v);
  }
}

void fill(SequenceState& cache, std::size_t begin, std::size_t end, float shift = 0) {
  REQUIRE(cache.reserve(begin, end));
  for (std::size_t p = begin; p < end; ++p) store(cache, p, shift);
}

/// Element d of a head of ten dims as the cache gives it back: a group of its own.
float read_back(KvType type, std::span<const float, 10> head, std::size_t d) {
  if (type == KvType::kF32) return head[d];
  if (type == KvType::kF16) return f16_to_f32(f32_to_f16(head[d]));
  std::int8_t codes[10];
  const float scale = quantize_codes(head, codes);
  return static_cast<float>(codes[d]) * scale;
}

bool holds(const SequenceState& cache, std::size_t begin, std::size_t end, float shift = 0) {
  for (std::size_t layer = 0; layer < layers_of(cache); ++layer) {
    for (std::size_t p = begin; p < end; ++p) {
      for (std::size_t r = 0; r < kRows; ++r) {
        std::array<float, 10> head;
        for (std::size_t d = 0; d < 10; ++d) head[d] = value_of(layer, p, r / 10 * 10 + d) + shift;
        const float x = read_back(cache.pool().type(), head, r % 10);
        if (cache.key(layer, r / 10, p, r % 10) != x) return false;
        if (cache.value(layer, r / 10, p, r % 10) != -x) return false;
      }
    }
  }
  return true;
}

}  // namespace

TEST_CASE("keys and values of every position are read back rounded", "[kv]") {
  for (const KvType type : kKvTypes) {
    SequenceState cache(pool_of(3, type));
    fill(cache, 0, 600);
    REQUIRE(holds(cache, 0, 600));
    REQUIRE(cache.n_pages() == 3);
  }
}

TEST_CASE("any range of rows may be stored by itself", "[kv]") {
  SequenceState cache(pool_of(1, KvType::kF32));
  REQUIRE(cache.reserve(0, 1));
  std::vector<float> x(kRows);
  for (std::size_t r = 0; r < kRows; ++r) x[r] = value_of(0, 0, r);
  for (std::size_t begin = 0; begin < kRows;) {
    const std::size_t n = std::min<std::size_t>(7, kRows - begin);  // crosses the heads' border
    std::vector<float> minus(x.begin() + static_cast<std::ptrdiff_t>(begin),
                             x.begin() + static_cast<std::ptrdiff_t>(begin + n));
    for (float& v : minus) v = -v;
    cache.store(0, begin, 0, std::span(x).subspan(begin, n), minus);
    begin += n;
  }
  for (std::size_t r = 0; r < kRows; ++r) {
    REQUIRE(cache.key(0, r / 10, 0, r % 10) == x[r]);
    REQUIRE(cache.value(0, r / 10, 0, r % 10) == -x[r]);
  }
}

TEST_CASE("rows come back from files' form in every layout", "[kv]") {
  const KvType type = GENERATE(from_range(std::begin(kKvTypes), std::end(kKvTypes)));
  const std::size_t head_dim = GENERATE(2, 24, 32, 34, 64, 80);
  const KvLayout layout{type, head_dim};
  constexpr auto kUntouched = std::byte{0xA5};
  std::vector<std::byte> page(layout.keys_bytes() + layout.values_bytes(), kUntouched);
  std::vector<std::vector<std::byte>> rows;
  const auto row_at = [&](std::size_t p) {
    return KvRow(layout, page.data(), page.data() + layout.keys_bytes(), p);
  };
  for (std::size_t p = 0; p < kPage; ++p) {
    std::vector<float> k(head_dim);
    for (std::size_t d = 0; d < head_dim; ++d) k[d] = value_of(p % 3, p, d);
    std::vector<float> v = k;
    for (float& x : v) x = -2 * x;
    row_at(p).store(0, k, v, KvRounding::kDefinition);
    std::vector<std::byte> raw(2 * layout.row_bytes());
    row_at(p).load_raw(std::span(raw).first(raw.size() / 2), std::span(raw).last(raw.size() / 2));
    rows.push_back(raw);
  }
  // Written the other way round, every byte is what it was: no position touches another's.
  const std::vector<std::byte> first = page;
  std::ranges::fill(page, kUntouched);
  for (std::size_t p = kPage; p-- > 0;) {
    const std::size_t half = rows[p].size() / 2;
    row_at(p).store_raw(std::span(rows[p]).first(half), std::span(rows[p]).last(half));
  }
  REQUIRE(page == first);
}

TEST_CASE("pages are taken on demand and given back", "[kv]") {
  const auto pool = pool_of(4);
  SequenceState a(pool);
  REQUIRE(pool->pages_in_use() == 0);
  REQUIRE(a.reserve(0, 1));
  REQUIRE(pool->pages_in_use() == 1);
  REQUIRE(a.reserve(1, kPage + 1));
  REQUIRE(pool->pages_in_use() == 2);
  {
    SequenceState b(pool);
    REQUIRE(b.reserve(0, 2 * kPage));
    REQUIRE(pool->pages_in_use() == 4);
    REQUIRE_FALSE(a.reserve(kPage + 1, 2 * kPage + 1));
    REQUIRE(a.n_pages() == 2);
  }
  REQUIRE(pool->pages_in_use() == 2);
  REQUIRE(a.reserve(kPage + 1, 2 * kPage + 1));
  a.truncate(kPage);
  REQUIRE(pool->pages_in_use() == 1);
  a.truncate(0);
  REQUIRE(pool->pages_in_use() == 0);
}

TEST_CASE("equal leading tokens share pages, the last one as far as they go", "[kv]") {
  const auto pool = pool_of(9);
  const auto tokens = text(2 * kPage + 40);
  SequenceState a(pool);
  fill(a, 0, tokens.size());
  a.publish(tokens);

  SequenceState b(pool);
  REQUIRE(b.adopt(tokens, 0) == 2 * kPage);
  REQUIRE(pool->pages_in_use() == 3);
  REQUIRE(pool->pages_shared() == 2);
  REQUIRE(holds(b, 0, 2 * kPage));

  SequenceState shorter(pool);
  REQUIRE(shorter.adopt(std::span(tokens).first(2 * kPage - 1), 0) == 2 * kPage - 1);
  auto other = tokens;
  other[kPage + 3] = 7;  // the second page differs
  SequenceState c(pool);
  REQUIRE(c.adopt(other, 0) == kPage + 3);
  REQUIRE(holds(c, 0, kPage + 3));
  REQUIRE(pool->pages_in_use() == 3);
  // What it writes is its own.
  fill(c, kPage + 3, 2 * kPage, 0.5F);
  REQUIRE(holds(a, 0, tokens.size()));
  REQUIRE(holds(c, kPage + 3, 2 * kPage, 0.5F));
  REQUIRE(pool->pages_in_use() == 4);
  c.publish(std::span(other).first(2 * kPage));
  // What a sequence was moved from holds nothing.
  SequenceState moved = std::move(c);
  REQUIRE(pool->pages_in_use() == 4);
  // The tail is found when its owner says so, by others of another root never.
  REQUIRE(SequenceState(pool).adopt(tokens, 0) == 2 * kPage);
  a.publish(tokens, SequenceState::Publish::kAll);
  REQUIRE(SequenceState(pool).adopt(tokens, 0) == tokens.size());
  REQUIRE(SequenceState(pool).adopt(std::span(other).first(2 * kPage), 0) == 2 * kPage);
  REQUIRE(SequenceState(pool, Prefix{std::byte{1}}).adopt(tokens, 0) == 0);
  other[0] = 9;  // equal tokens after other tokens are other keys
  SequenceState d(pool);
  REQUIRE(d.adopt(other, 0) == 0);
}

TEST_CASE("a shared page is copied before it is written", "[kv]") {
  const auto pool = pool_of(4);
  const auto tokens = text(2 * kPage);
  SequenceState a(pool);
  fill(a, 0, 2 * kPage);
  a.publish(tokens);
  SequenceState b(pool);
  REQUIRE(b.adopt(tokens, 0) == 2 * kPage);
  b.truncate(kPage + 5);
  fill(b, kPage + 5, 2 * kPage, 0.5F);
  REQUIRE(holds(a, 0, 2 * kPage));
  REQUIRE(holds(b, 0, kPage + 5));
  REQUIRE(holds(b, kPage + 5, 2 * kPage, 0.5F));
  REQUIRE(pool->pages_in_use() == 3);
}

TEST_CASE("sequences that go on from one partly filled page each have their own", "[kv]") {
  const auto pool = pool_of(4);
  const auto tokens = text(100);
  SequenceState a(pool);
  fill(a, 0, 100);
  a.publish(tokens, SequenceState::Publish::kAll);
  SequenceState b(pool);
  REQUIRE(b.adopt(tokens, 0) == 100);
  fill(b, 100, 110, 0.5F);
  fill(a, 100, 110);
  REQUIRE(holds(a, 0, 110));
  REQUIRE(holds(b, 0, 100));
  REQUIRE(holds(b, 100, 110, 0.5F));
}

TEST_CASE("a published page that is written again stays findable where there is room for a copy",
          "[kv]") {
  const std::size_t n_pages = GENERATE(1, 2);
  const auto pool = pool_of(n_pages);
  const auto tokens = text(kPage);
  SequenceState a(pool);
  fill(a, 0, kPage);
  a.publish(tokens);
  a.truncate(10);
  fill(a, 10, kPage, 0.5F);
  REQUIRE(holds(a, 10, kPage, 0.5F));
  SequenceState b(pool);
  REQUIRE(b.adopt(tokens, 0) == (n_pages == 2 ? kPage : 0));
  REQUIRE(holds(b, 0, n_pages == 2 ? kPage : 0));
}

TEST_CASE("a sequence goes on in the page that it adopted, which stays findable", "[kv]") {
  const auto pool = pool_of(1);
  const auto tokens = text(100);
  {
    SequenceState a(pool);
    fill(a, 0, 60);
    a.publish(std::span(tokens).first(60), SequenceState::Publish::kAll);
  }
  {
    SequenceState b(pool);
    REQUIRE(b.adopt(tokens, 0) == 60);
    fill(b, 60, 100);
    REQUIRE(b.adopt(tokens, 100) == 100);
    REQUIRE(SequenceState(pool).adopt(tokens, 0) == 60);
    b.publish(tokens, SequenceState::Publish::kAll);
  }
  SequenceState c(pool);
  REQUIRE(c.adopt(tokens, 0) == 100);
  REQUIRE(holds(c, 0, 100));
}

TEST_CASE("what was published twice is held once", "[kv]") {
  const auto pool = pool_of(4);
  const auto tokens = text(kPage);
  SequenceState a(pool);
  SequenceState b(pool);
  fill(a, 0, kPage);
  fill(b, 0, kPage);
  a.publish(tokens);
  REQUIRE(pool->pages_in_use() == 2);
  b.publish(tokens);
  REQUIRE(pool->pages_in_use() == 1);
  REQUIRE(a.pages(0)[0] == b.pages(0)[0]);
}

TEST_CASE("kept prefixes give way to sequences, the longest unused first", "[kv]") {
  const auto pool = pool_of(3);
  for (const TokenId first : {0, 1000, 2000}) {
    SequenceState cache(pool);
    fill(cache, 0, kPage);
    cache.publish(text(kPage, first));
  }
  REQUIRE(pool->pages_in_use() == 0);
  {
    SequenceState again(pool);
    REQUIRE(again.adopt(text(kPage, 0), 0) == kPage);  // now 1000 is the oldest
  }
  SequenceState taker(pool);
  REQUIRE(taker.reserve(0, 1));
  SequenceState b(pool);
  SequenceState c(pool);
  SequenceState d(pool);
  REQUIRE(b.adopt(text(kPage, 1000), 0) == 0);
  REQUIRE(c.adopt(text(kPage, 2000), 0) == kPage);
  REQUIRE(d.adopt(text(kPage, 0), 0) == kPage);
  REQUIRE_FALSE(taker.reserve(1, kPage + 1));
}

TEST_CASE("layers with equal windows share pages, as many in each group", "[kv]") {
  const auto groups_of = [](const std::vector<std::size_t>& windows) {
    return pool_of(1, KvType::kF16, windows)->groups();
  };
  const KvGroups plain = groups_of({0, 0, 0});
  const std::size_t one = plain.memory(0).bytes();
  REQUIRE((plain.size() == 1 && plain.page_bytes() == 3 * one && plain.window(0) == 0));
  const KvGroups all = groups_of({7, 7});
  REQUIRE((all.size() == 1 && all.page_bytes() == 2 * one && all.window(0) == 7));
  const KvGroups groups = groups_of({5, 5, 0, 5, 5, 0});
  REQUIRE((groups.size() == 3 && groups.page_bytes() == 2 * one));
  std::set<std::pair<std::size_t, std::size_t>> places;
  for (std::size_t layer = 0; layer < 6; ++layer) {
    REQUIRE(groups.window(groups.group_of(layer)) == (layer % 3 == 2 ? 0 : 5));
    REQUIRE(groups.offset_of(layer) % one == 0);
    places.insert({groups.group_of(layer), groups.offset_of(layer)});
  }
  REQUIRE(places.size() == 6);
  REQUIRE(groups_of({0, 5, 5}).size() == 3);  // 1 and 2 layers: one each
}

TEST_CASE("a sequence is promised no page fewer than it holds at most", "[kv]") {
  for (const std::size_t window : {1, 2, 5, 255, 256, 257, 300, 512, 2000}) {
    for (const std::size_t pass : {1, 2, 64, 255, 256, 257, 600}) {
      const auto pool = pool_of(1, KvType::kF16, {window, 0});
      std::size_t before = 0;
      for (std::size_t n = 1; n < 1900; n += 1 + n % 7) {
        CAPTURE(window, pass, n);
        std::size_t held = 0;
        for (std::size_t begin = 0; begin < n; ++begin) {
          const std::size_t end = std::min(n, begin + pass);
          held = std::max(held, KvGroups::pages_for(end) -
                                    KvGroups::first_page(window, KvGroups::kept_from(begin)));
        }
        const std::size_t promised = pool->groups().most_pages(n, pass);
        REQUIRE(promised >= held + KvGroups::pages_for(n));
        REQUIRE(promised <= held + 1 + KvGroups::pages_for(n));
        REQUIRE(promised >= before);
        before = promised;
      }
    }
  }
}

TEST_CASE("a page is given back when the windows of all to come are past it", "[kv]") {
  const auto pool = pool_of(9, KvType::kF16, {5, 0, 5});
  REQUIRE(pool->groups().size() == 3);
  SequenceState cache(pool);
  constexpr std::size_t kGone = kPage + 4;  // the first position that does not look at 255
  constexpr std::size_t kBegin = kGone + KvGroups::kSlack;
  fill(cache, 0, kBegin - 1);
  REQUIRE(pool->pages_in_use() == 6);
  fill(cache, kBegin - 1, kBegin);
  REQUIRE(pool->pages_in_use() == 6);
  REQUIRE(holds(cache, 0, kBegin));
  REQUIRE(cache.reusable(17) == 17);
  fill(cache, kBegin, kBegin + 1);
  REQUIRE(pool->pages_in_use() == 4);
  REQUIRE(cache.n_pages() == 4);
  REQUIRE(holds(cache, kPage, kBegin + 1));
  REQUIRE(cache.pages(0)[0] == nullptr);
  REQUIRE(cache.pages(2)[0] == nullptr);
  REQUIRE(cache.pages(1)[0] != nullptr);
  REQUIRE(cache.key(1, 0, 0, 3) != 0);

  REQUIRE(cache.reusable(kGone) == kGone);
  REQUIRE(cache.reusable(kGone - 1) == 0);
  REQUIRE(cache.truncate(kGone) == kGone);
  REQUIRE(pool->pages_in_use() == 4);
  REQUIRE(cache.truncate(kGone - 1) == 0);
  REQUIRE(pool->pages_in_use() == 0);
  fill(cache, 0, kPage + 10);
  REQUIRE(holds(cache, 0, kPage + 10));
  REQUIRE(cache.reserve(3 * kPage, 3 * kPage + 1));  // and whatever was between
  REQUIRE(pool->pages_in_use() == 4 + 2 * 2);
}

TEST_CASE("a prefix is taken over where the window's pages are there", "[kv]") {
  const auto pool = pool_of(30, KvType::kF16, {300, 0});
  const auto tokens = text(5 * kPage);
  SequenceState a(pool);
  // In one go, so that it holds all.
  fill(a, 0, 5 * kPage);
  a.publish(tokens);
  REQUIRE(pool->pages_in_use() == 10);
  const auto adopted = [&](std::size_t n) {
    SequenceState b(pool);
    const std::size_t before = pool->pages_in_use();
    const std::size_t n_adopted = b.adopt(std::span(tokens).first(n), 0);
    if (n_adopted == 5 * kPage) {
      REQUIRE(b.n_pages() == 5 + 2);
      REQUIRE(pool->pages_in_use() == before);
      REQUIRE(b.pages(0)[2] == nullptr);
      REQUIRE(b.pages(0)[3] == a.pages(0)[3]);
      REQUIRE(b.pages(1)[2] == a.pages(1)[2]);
      REQUIRE(b.reusable(5 * kPage) == 5 * kPage);
      REQUIRE(b.reusable(4 * kPage) == 0);
    }
    return n_adopted;
  };
  const auto lose = [&](std::size_t layer, std::size_t i) {
    const auto& layout = pool->memory(0);
    const auto page = static_cast<KvPool::Page>((a.pages(layer)[i] - layout) /
                                                static_cast<std::ptrdiff_t>(pool->page_bytes()));
    pool->unpublish(page);
  };
  REQUIRE(adopted(5 * kPage) == 5 * kPage);
  lose(0, 1);
  REQUIRE(adopted(5 * kPage) == 5 * kPage);
  REQUIRE(adopted(5 * kPage - 1) == 5 * kPage - 1);
  REQUIRE(adopted(2 * kPage + 298) == kPage);  // which looks at 511
  REQUIRE(adopted(2 * kPage + 299) == 2 * kPage + 299);
  lose(0, 4);
  REQUIRE(adopted(5 * kPage) == 4 * kPage);
  lose(1, 3);
  REQUIRE(adopted(5 * kPage) == kPage);
  // Who has the same tokens brings back what was lost.
  SequenceState c(pool);
  fill(c, 0, 5 * kPage);
  c.publish(tokens);
  REQUIRE(c.pages(0)[0] == a.pages(0)[0]);
  REQUIRE(c.pages(0)[4] != a.pages(0)[4]);
  REQUIRE(adopted(5 * kPage - 1) == 5 * kPage - 1);
  SequenceState d(pool);
  REQUIRE(d.adopt(tokens, 0) == 5 * kPage);
  REQUIRE(d.pages(0)[4] == c.pages(0)[4]);
}

TEST_CASE("a sequence goes on from its own pages and others'", "[kv]") {
  const auto pool = pool_of(30, KvType::kF16, {300, 0});
  const auto tokens = text(4 * kPage);
  SequenceState a(pool);
  SequenceState b(pool);
  fill(b, 0, kPage + 9);
  b.publish(std::span(tokens).first(kPage + 9));
  REQUIRE(a.adopt(std::span(tokens).first(kPage), 0) == kPage);
  fill(a, kPage, 4 * kPage);
  a.publish(tokens);
  REQUIRE(b.adopt(std::span(tokens).first(2 * kPage), kPage + 9) == 2 * kPage);
  REQUIRE(holds(b, 0, 2 * kPage));
  REQUIRE(b.adopt(tokens, 2 * kPage) == 4 * kPage);
  REQUIRE(b.n_pages() == 4 + 2);
  REQUIRE(b.pages(0)[1] == nullptr);
  REQUIRE(holds(b, 2 * kPage, 4 * kPage));
}

TEST_CASE("what was stored once and is not found is known, and why", "[kv]") {
  using Gone = SequenceState::Gone;
  const auto pool = pool_of(30, KvType::kF16, {300, 0});
  const auto tokens = text(5 * kPage);
  SequenceState a(pool);
  fill(a, 0, 5 * kPage);
  a.publish(tokens);
  const auto lose = [&](std::size_t layer, std::size_t i) {
    const auto offset = a.pages(layer)[i] - pool->memory(0);
    pool->unpublish(static_cast<KvPool::Page>(offset / std::ptrdiff_t(pool->page_bytes())));
  };
  const auto lost = [&](std::size_t n_adopted) {
    SequenceState b(pool);
    REQUIRE(b.adopt(tokens, 0) == n_adopted);
    return b.lost(tokens, n_adopted);
  };
  REQUIRE(lost(5 * kPage).n_tokens == 0);
  lose(0, 4);
  REQUIRE((lost(4 * kPage).n_tokens == kPage && lost(4 * kPage).why == Gone::kWindow));
  lose(1, 2);
  REQUIRE((lost(2 * kPage).n_tokens == 3 * kPage && lost(2 * kPage).why == Gone::kEvicted));
  SequenceState other(pool);
  REQUIRE(other.lost(text(5 * kPage, 9), 0).n_tokens == 0);
}

TEST_CASE("the page whose tokens cost least is evicted first; what was lent comes back", "[kv]") {
  const auto pool = pool_of(3);
  const Prefix root{};
  std::vector<KvPool::Page> pages;
  for (const std::size_t worth : {300, 10, 300}) {
    KvPool::Page page = *pool->acquire();
    pool->publish(root, 0, text(20, static_cast<TokenId>(100 * pages.size())), page);
    pool->set_worth(page, worth);
    pages.push_back(page);
  }
  for (const KvPool::Page page : pages) pool->release(page);
  REQUIRE(*pool->acquire() == pages[1]);  // younger than the first, and cheaper
  REQUIRE(*pool->acquire() == pages[0]);
  const KvPool::Ticket ticket = pool->lend(pages[1]);
  REQUIRE(pool->is_lent(pages[1], ticket));
  pool->take_back(pages[1]);
  REQUIRE_FALSE(pool->is_lent(pages[1], ticket));
  const KvPool::Ticket lost = pool->lend(pages[1]);
  REQUIRE(*pool->acquire() == pages[2]);  // the longest unused
  REQUIRE(pool->is_lent(pages[1], lost));
  REQUIRE(*pool->acquire() == pages[1]);
  REQUIRE_FALSE(pool->is_lent(pages[1], lost));
  REQUIRE_FALSE(pool->acquire().has_value());
  const KvPool::Ticket last = pool->lend(pages[1]);
  pool->give_up(pages[1]);
  REQUIRE_FALSE(pool->is_lent(pages[1], last));
  REQUIRE(*pool->acquire() == pages[1]);
}

}  // namespace llm
