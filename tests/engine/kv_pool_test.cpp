// Pages of keys and values: what is stored is read back, shared pages are never written, and every
// page finds its way back.

#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "engine/forward/kv_cache.h"
#include "quant/formats/activations.h"
#include "quant/formats/half.h"
#include "tests/support/catch.h"

namespace llm {
namespace {

constexpr std::size_t kPage = KvPool::kPagePositions;
constexpr std::size_t kRows = 2 * 10;  // two KV heads of ten dims

std::shared_ptr<KvPool> pool_of(std::size_t n_pages, KvType type = KvType::kF16) {
  HyperParameters config{};
  config.n_layers = 3;
  config.n_kv_heads = 2;
  config.head_dim = 10;
  auto pool = KvPool::create(config, n_pages, type);
  REQUIRE(pool.ok());
  return *pool;
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

void store(KvCache& cache, std::size_t position, float shift = 0) {
  std::vector<float> k(kRows);
  std::vector<float> v(kRows);
  for (std::size_t layer = 0; layer < 3; ++layer) {
    for (std::size_t r = 0; r < kRows; ++r) {
      k[r] = value_of(layer, position, r) + shift;
      v[r] = -k[r];
    }
    cache.store(layer, 0, position, k, v);
  }
}

void fill(KvCache& cache, std::size_t begin, std::size_t end, float shift = 0) {
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

bool holds(const KvCache& cache, std::size_t begin, std::size_t end, float shift = 0) {
  for (std::size_t layer = 0; layer < 3; ++layer) {
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
    KvCache cache(pool_of(3, type));
    fill(cache, 0, 600);
    REQUIRE(holds(cache, 0, 600));
    REQUIRE(cache.n_pages() == 3);
  }
}

TEST_CASE("any range of rows may be stored by itself", "[kv]") {
  KvCache cache(pool_of(1, KvType::kF32));
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
  KvCache a(pool);
  REQUIRE(pool->pages_in_use() == 0);
  REQUIRE(a.reserve(0, 1));
  REQUIRE(pool->pages_in_use() == 1);
  REQUIRE(a.reserve(1, kPage + 1));
  REQUIRE(pool->pages_in_use() == 2);
  {
    KvCache b(pool);
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

TEST_CASE("equal leading tokens share whole pages", "[kv]") {
  const auto pool = pool_of(8);
  const auto tokens = text(2 * kPage + 40);
  KvCache a(pool);
  fill(a, 0, tokens.size());
  a.publish(tokens);

  KvCache b(pool);
  REQUIRE(b.adopt(tokens) == 2 * kPage);
  REQUIRE(pool->pages_in_use() == 3);
  REQUIRE(pool->pages_shared() == 2);
  REQUIRE(holds(b, 0, 2 * kPage));

  KvCache shorter(pool);
  REQUIRE(shorter.adopt(std::span(tokens).first(2 * kPage - 1)) == kPage);
  auto other = tokens;
  other[kPage + 3] = 7;  // the second page differs
  KvCache c(pool);
  REQUIRE(c.adopt(other) == kPage);
  other[0] = 9;  // equal tokens after other tokens are other keys
  KvCache d(pool);
  REQUIRE(d.adopt(other) == 0);
}

TEST_CASE("a shared page is copied before it is written", "[kv]") {
  const auto pool = pool_of(4);
  const auto tokens = text(2 * kPage);
  KvCache a(pool);
  fill(a, 0, 2 * kPage);
  a.publish(tokens);
  KvCache b(pool);
  REQUIRE(b.adopt(tokens) == 2 * kPage);
  b.truncate(kPage + 5);
  fill(b, kPage + 5, 2 * kPage, 0.5F);
  REQUIRE(holds(a, 0, 2 * kPage));
  REQUIRE(holds(b, 0, kPage + 5));
  REQUIRE(holds(b, kPage + 5, 2 * kPage, 0.5F));
  REQUIRE(pool->pages_in_use() == 3);
}

TEST_CASE("a published page that is written anew is no longer found", "[kv]") {
  const auto pool = pool_of(4);
  const auto tokens = text(kPage);
  KvCache a(pool);
  fill(a, 0, kPage);
  a.publish(tokens);
  a.truncate(10);
  fill(a, 10, kPage, 0.5F);
  KvCache b(pool);
  REQUIRE(b.adopt(tokens) == 0);
}

TEST_CASE("what was published twice is held once", "[kv]") {
  const auto pool = pool_of(4);
  const auto tokens = text(kPage);
  KvCache a(pool);
  KvCache b(pool);
  fill(a, 0, kPage);
  fill(b, 0, kPage);
  a.publish(tokens);
  REQUIRE(pool->pages_in_use() == 2);
  b.publish(tokens);
  REQUIRE(pool->pages_in_use() == 1);
  REQUIRE(a.pages()[0] == b.pages()[0]);
}

TEST_CASE("kept prefixes give way to sequences, the longest unused first", "[kv]") {
  const auto pool = pool_of(3);
  for (const TokenId first : {0, 1000, 2000}) {
    KvCache cache(pool);
    fill(cache, 0, kPage);
    cache.publish(text(kPage, first));
  }
  REQUIRE(pool->pages_in_use() == 0);
  {
    KvCache again(pool);
    REQUIRE(again.adopt(text(kPage, 0)) == kPage);  // now 1000 is the oldest
  }
  KvCache taker(pool);
  REQUIRE(taker.reserve(0, 1));
  KvCache b(pool);
  KvCache c(pool);
  KvCache d(pool);
  REQUIRE(b.adopt(text(kPage, 1000)) == 0);
  REQUIRE(c.adopt(text(kPage, 2000)) == kPage);
  REQUIRE(d.adopt(text(kPage, 0)) == kPage);
  REQUIRE_FALSE(taker.reserve(1, kPage + 1));
}

}  // namespace llm
