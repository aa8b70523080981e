// Layers that differ: in heads and feed-forwards, in what they keep of a sequence.

#include "engine/engine.h"
#include "engine/forward/activation_points.h"
#include "tests/support/test.h"
#include "tests/support/tiny_model.h"

namespace llm::test {
namespace {

using Ids = std::vector<TokenId>;
using Rows = std::vector<float>;

Ids text_of(std::size_t n) {
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
  const Ids ids = text_of(40);
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
  const Ids ids = text_of(4);
  state.publish(ids);
  REQUIRE(SequenceState(pool).adopt(ids, 0) == 0);
  state.publish(ids, SequenceState::Publish::kAll);
  REQUIRE(SequenceState(pool).adopt(std::span(ids).first(3), 0) == 0);
  REQUIRE(state.reserve(4, 5));
  std::ranges::fill(state.state(2), std::byte{7});
  {
    SequenceState other(pool);
    REQUIRE(other.adopt(text_of(100), 0) == 4);
    REQUIRE(std::ranges::count(other.state(2), std::byte{2}) == 100);
    REQUIRE(other.reserve(4, 9));
    REQUIRE(other.key(5, 0, 3, 7) == 0.5F);
    other.publish(text_of(9), SequenceState::Publish::kAll);
    for (const std::size_t n : {3, 4, 8, 9, 100}) {
      const std::size_t there = n < 4 ? 0 : n < 9 ? 4 : 9;
      REQUIRE(SequenceState(pool).adopt(text_of(n), 0) == there);
    }
  }

  REQUIRE(state.truncate(2) == 0);
  REQUIRE(state.n_pages() == 0);
  REQUIRE(pool->pages_in_use() == 0);
  REQUIRE(state.reserve(0, 1));
  REQUIRE(std::ranges::count(state.state(2), std::byte{0}) == 100);
}

namespace {

struct Sent {
  int layer;
  std::string name;
  std::size_t features;
  std::size_t n_rows;
  std::size_t first_token;
  bool operator==(const Sent&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Sent& sent) {
  return out << sent.layer << '/' << sent.name << ' ' << sent.n_rows << " x " << sent.features
             << " from " << sent.first_token;
}

class Listener final : public ProbeSink {
 public:
  void begin_step(std::span<const int>, std::size_t) override {}
  void tap(int layer, std::string_view name, std::span<float> values, std::size_t features,
           std::size_t first_token) override {
    sent.push_back({layer, std::string(name), features, values.size() / features, first_token});
  }
  std::vector<Sent> sent;
};

/// What the table promises for a call of n_tokens that asks for the logits of the last n_rows.
std::vector<Sent> promised(const HyperParameters& config, std::size_t n_tokens,
                           std::size_t n_rows) {
  std::vector<Sent> out;
  for (const auto& [tap, layer] : taps_of_model(config)) {
    const bool of_rows = tap->name == "result_norm" || tap->name == "logits";
    if (of_rows && n_rows == 0) continue;
    const std::size_t first = of_rows ? n_tokens - n_rows : 0;
    out.push_back(
        {layer, std::string(tap->name), tap->width.of(config, layer), n_tokens - first, first});
  }
  return out;
}

}  // namespace

TEST_CASE("a forward pass sends the taps of the table", "[engine][taps]") {
  const std::string architecture = GENERATE(from_range(TinyGguf::architectures()));
  CAPTURE(architecture);
  const auto model = loaded(TinyGguf::llama({.n_layers = 2, .architecture = architecture}));
  const bool reference = GENERATE(false, true);
  CAPTURE(reference);
  const auto sequence = require_ok(open_sequence(model, {}, {.reference = reference}));
  struct Call {
    std::vector<TokenId> tokens;
    LogitRows rows;
    std::size_t n_rows;
  };
  const std::vector<Call> calls = {{{1, 2, 3, 4, 5}, LogitRows::kAll, 5},
                                   {{6, 7, 8}, LogitRows::kLast, 1},
                                   {{9}, LogitRows::kLast, 1},
                                   {{10, 11}, LogitRows::kNone, 0}};
  for (const Call& call : calls) {
    Listener listener;
    sequence->set_probe(&listener);
    REQUIRE(sequence->evaluate(call.tokens, call.rows).ok());
    CHECK(listener.sent == promised(model->config(), call.tokens.size(), call.n_rows));
  }
}

}  // namespace llm::test
