// Layers that differ: in heads and feed-forwards, in what they keep of a sequence.

#include "engine/engine.h"
#include "tests/support/test.h"
#include "tests/support/tiny_model.h"

namespace llm::test {
namespace {

using Ids = std::vector<TokenId>;
using Rows = std::vector<float>;

Ids some_text(std::size_t n) {
  Ids ids(n);
  for (std::size_t i = 0; i < n; ++i) ids[i] = static_cast<TokenId>(3 + i * 37 % 200);
  return ids;
}

/// The rows of logits of a text, in calls of `step` tokens.
Rows rows_of(const std::shared_ptr<const Model>& model, const Ids& ids, std::size_t step, KvType kv,
             bool reference = false) {
  const auto sequence = require_ok(open_sequence(
      model, {.context = ids.size(), .kv = kv, .batch = step}, {.reference = reference}));
  Rows out;
  for (std::size_t at = 0; at < ids.size(); at += step) {
    const auto part = std::span(ids).subspan(at, std::min(step, ids.size() - at));
    const auto rows = require_ok(sequence->evaluate(part, LogitRows::kAll));
    out.insert(out.end(), rows.begin(), rows.end());
  }
  return out;
}

TinyGguf unlike(const std::string& architecture) {
  return TinyGguf::llama({.n_layers = 4, .architecture = architecture, .unlike_layers = true});
}

/// Three layers of keys and values, one of them of half the heads; two states; a layer that reads
/// what layer 1 keeps.
KvGroups mixed_groups() {
  const KvLayout layout{KvType::kF32, 16};
  return KvGroups({{.layout = layout, .n_heads = 2},
                   {.layout = layout, .n_heads = 1},
                   {.state_bytes = 100},
                   {.layout = layout, .n_heads = 2},
                   {.state_bytes = 100},
                   {.of_layer = 1}});
}

}  // namespace

TEST_CASE("layers of unlike sizes give the definition's bits", "[layers]") {
  const std::string architecture = GENERATE("llama", "qwen2", "gpt-oss", "gemma3");
  const KvType kv = GENERATE(KvType::kF16, KvType::kQ8);
  const auto model = loaded(unlike(architecture));
  CAPTURE(architecture, kv_name(kv));
  REQUIRE(model->config().attention(0).n_heads == 2 * model->config().attention(1).n_heads);
  REQUIRE(model->config().layers[0].d_ff() == 2 * model->config().layers[1].d_ff());
  const Ids ids = some_text(40);
  const Rows expected = rows_of(model, ids, ids.size(), kv, true);
  for (const std::size_t step : {1, 7, 40}) {
    CAPTURE(step);
    REQUIRE(same_bits(rows_of(model, ids, step, kv), expected));
  }
}

TEST_CASE("a page has one size, and holds as many layers of a kind as find room", "[layers][kv]") {
  const KvGroups groups = mixed_groups();
  const std::size_t wide = groups.memory(0).bytes();
  REQUIRE(groups.page_bytes() == wide);
  REQUIRE(groups.n_layers() == 6);
  // Each wide layer has a group, the narrow one, and both states.
  REQUIRE(groups.size() == 4);
  REQUIRE(groups.group_of(0) != groups.group_of(3));
  REQUIRE(groups.group_of(2) == groups.group_of(4));
  REQUIRE(groups.is_state(groups.group_of(2)));
  REQUIRE(groups.offset_of(4) >= groups.offset_of(2) + 100);
  REQUIRE(groups.group_of(5) == groups.group_of(1));
  REQUIRE(groups.offset_of(5) == groups.offset_of(1));
  REQUIRE(groups.most_pages(1, 1) == 4);
  REQUIRE(groups.most_pages(600, 600) == 3 * 3 + 1);
}

TEST_CASE("a state is of the position that the last pass ended at, and of no other",
          "[layers][kv]") {
  const auto pool = require_ok(KvPool::create(mixed_groups(), 16, KvType::kF32));
  SequenceState state(pool);
  REQUIRE(state.reserve(0, 3));
  for (const std::size_t layer : {2U, 4U}) {
    REQUIRE(state.state(layer).size() == 100);
    REQUIRE(std::ranges::count(state.state(layer), std::byte{0}) == 100);
    std::ranges::fill(state.state(layer), static_cast<std::byte>(layer));
  }
  REQUIRE(std::ranges::count(state.state(2), std::byte{2}) == 100);
  REQUIRE(state.reusable(3) == 3);
  REQUIRE(state.reusable(2) == 0);
  REQUIRE(state.truncate(3) == 3);
  REQUIRE(state.reserve(3, 4));
  REQUIRE(std::ranges::count(state.state(4), std::byte{4}) == 100);
  REQUIRE(state.n_pages() == 4);

  const std::vector<float> row(2 * 16, 0.5F);
  state.store(1, 0, 3, std::span(row).first(16), std::span(row).first(16));
  REQUIRE(state.key(5, 0, 3, 7) == 0.5F);

  // Others can go on from a position whose state is published, and from no other.
  const Ids ids = some_text(4);
  state.publish(ids);
  REQUIRE(SequenceState(pool).adopt(ids, 0) == 0);
  state.publish(ids, SequenceState::Publish::kAll);
  REQUIRE(SequenceState(pool).adopt(std::span(ids).first(3), 0) == 0);
  REQUIRE(state.reserve(4, 5));
  std::ranges::fill(state.state(2), std::byte{7});
  {
    SequenceState other(pool);
    REQUIRE(other.adopt(some_text(100), 0) == 4);
    REQUIRE(std::ranges::count(other.state(2), std::byte{2}) == 100);
    REQUIRE(other.reserve(4, 9));
    REQUIRE(other.key(5, 0, 3, 7) == 0.5F);
    other.publish(some_text(9), SequenceState::Publish::kAll);
    for (const std::size_t n : {3, 4, 8, 9, 100}) {
      const std::size_t there = n < 4 ? 0 : n < 9 ? 4 : 9;
      REQUIRE(SequenceState(pool).adopt(some_text(n), 0) == there);
    }
  }

  REQUIRE(state.truncate(2) == 0);
  REQUIRE(state.n_pages() == 0);
  REQUIRE(pool->pages_in_use() == 0);
  REQUIRE(state.reserve(0, 1));
  REQUIRE(std::ranges::count(state.state(2), std::byte{0}) == 100);
}

}  // namespace llm::test
