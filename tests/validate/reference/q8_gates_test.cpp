// Keys and values in q8 as llmcheck sees them: attention written a second time in f64, what its
// rounding costs, and a reference that rounded alike.

#include "engine/engine.h"
#include "engine/forward/reference/ops.h"
#include "tests/validate/reference/transformers_run.h"
#include "validate/reference/diff/metrics.h"
#include "validate/reference/fault_localization/ideal_ops.h"
#include "validate/reference/fault_localization/op_check.h"
#include "validate/reference/gates/drift.h"
#include "validate/reference/gates/layer_check.h"

namespace llm::test {
namespace {

/// q, K or V of n tokens, some of them `most` times as large as the others.
TapMatrix drawn(std::size_t n, std::size_t features, float size, float most, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  TapMatrix out{n, features, std::vector<float>(n * features)};
  for (std::size_t i = 0; i < out.values.size(); ++i)
    out.values[i] = size * (i / features % 37 == 3 ? most : 1.0F) * normal(random);
  return out;
}

/// What the definition makes of them.
TapMatrix by_definition(const AttentionSpec& spec, KvType kv, const TapMatrix& q,
                        const TapMatrix& k, const TapMatrix& v, TokenRows rows) {
  HyperParameters config{.n_layers = 1};
  config.layers = {{.mixer = spec}};
  SequenceState cache(require_ok(KvPool::create(config, KvGroups::pages_for(k.rows), kv)));
  REQUIRE(cache.reserve(0, k.rows));
  const auto row = [](const TapMatrix& m, std::size_t t) {
    return std::span(m.values).subspan(t * m.features, m.features);
  };
  for (std::size_t t = 0; t < k.rows; ++t) cache.store(0, 0, t, row(k, t), row(v, t));
  TapMatrix out{q.rows, q.features, std::vector<float>(q.values.size())};
  const std::size_t dim = spec.head_dim;
  for (std::size_t t = 0; t < q.rows; ++t) {
    for (std::size_t h = 0; h < spec.n_heads; ++h) {
      reference::attend(row(q, t).subspan(h * dim, dim), {spec.scale}, cache, 0,
                        h / spec.heads_per_kv(), rows[t], spec.window, nullptr,
                        std::span(out.values).subspan(t * q.features + h * dim, dim));
    }
  }
  return out;
}

std::shared_ptr<const Model> embedded(Compute compute) {
  return require_ok(
      Model::load(LLM_SOURCE_DIR "/models/fable-3m-q4_k_m.gguf", {.compute = compute}));
}

}  // namespace

TEST_CASE("attention in q8 written a second time equals the definition's, up to its noise",
          "[gates]") {
  const std::size_t dim = GENERATE(32, 40, 80);
  const std::size_t window = GENERATE(0, 40, 300);
  const AttentionSpec spec{.n_heads = 4,
                           .n_kv_heads = 2,
                           .head_dim = dim,
                           .window = window,
                           .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dim)))};
  const std::vector<std::size_t> rows = {0, 1, 31, 32, 254, 255, 256, 300, 519};
  const TapMatrix k = drawn(520, 2 * dim, 0.5F, 3, 1);
  const TapMatrix v = drawn(520, 2 * dim, 1, 20, 2);
  const TapMatrix q = drawn(rows.size(), 4 * dim, 1, 1, 3);
  const TapMatrix expected = by_definition(spec, KvType::kQ8, q, k, v, rows);
  const IdealOutput ideal = ideal_attention(spec, KvType::kQ8, q, k, v, rows);
  const IdealOutput finer = ideal_attention(spec, KvType::kF16, q, k, v, rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(dim, window, rows[i]);
    const auto row = [&](const TapMatrix& m) {
      return std::span(m.values).subspan(i * m.features, m.features);
    };
    const double error = nmse(row(expected), row(ideal.output));
    CHECK(error < ideal.row_noise[i] + 1e-14);
    CHECK(ideal.row_noise[i] < 1e-7);
    // Without the roundings of q8 it is another result.
    CHECK(nmse(row(expected), row(finer.output)) > 1e-6);
  }
}

TEST_CASE("the noise of q8 is predicted to some percent", "[gates]") {
  const Dump clean = recorded(embedded(Compute::kF32), KvType::kF32, some_tokens(40));
  const Replay replay(embedded(Compute::kF32), KvType::kQ8);
  const OpNoise predicted = require_ok(rounding_noise(replay, clean));
  for (const auto& [tap, rounded] : {std::pair("q_rope", "q_rope"), {"k", "k_rope"}, {"v", "v"}}) {
    CAPTURE(tap);
    const TapMatrix exact = require_ok(clean.tap(1, rounded));
    TapMatrix coded = exact;
    constexpr std::size_t kGroup = 32;  // the embedded model's heads
    REQUIRE(replay.config().attention(1).head_dim == kGroup);
    for (std::size_t at = 0; at < coded.values.size(); at += kGroup) {
      std::int8_t codes[kGroup];
      const float scale = quantize_codes(std::span(exact.values).subspan(at, kGroup), codes);
      for (std::size_t i = 0; i < kGroup; ++i)
        coded.values[at + i] = scale * static_cast<float>(codes[i]);
    }
    CHECK(nmse(coded.values, exact.values) / predicted.at({1, tap}) == Approx(1).margin(0.1));
  }
}

TEST_CASE("a run of this engine in q8 is held against q8", "[gates]") {
  const Compute compute = GENERATE(Compute::kInt8, Compute::kF32);
  const auto model = embedded(compute);
  const Dump own = recorded(model, KvType::kQ8, some_tokens(20));
  CHECK(own.meta().kv == "q8");
  const auto modes = modes_for(own.meta());
  REQUIRE(modes.size() == 1);
  CHECK(modes[0].compute == compute);
  CHECK(modes[0].kv == KvType::kQ8);
  const auto section = [&](const Dump& reference, const std::string& question) {
    for (const DiffSection& found : require_ok(check_layers(model, modes[0], reference, {})))
      if (found.name == mode_name(modes[0]) + question) return found;
    FAIL("no such section");
    return DiffSection{};
  };
  CHECK(section(own, "-bits").passed());
  const DiffSection ops = section(own, "-ops");
  CHECK(ops.passed());
  CHECK(ops.title.find("q8 cache: each op gives the reference's output on its inputs") !=
        std::string::npos);
  // Rounding the weights of keys leaves 1e-9; a head that is off by a thousandth shows.
  const Dump bad = rewritten(own, own.meta(), [](int layer, std::string_view tap, TapMatrix& m) {
    if (layer == 2 && tap == "attn_ctx")
      for (float& x : std::span(m.values).last(32)) x *= 1.001F;
    return true;
  });
  const DiffSection failed = section(bad, "-ops");
  REQUIRE(!failed.passed());
  REQUIRE(!failed.location.findings.empty());
  CHECK(failed.location.findings[0].layer == 2);
  CHECK(failed.location.findings[0].tap == "attn_ctx");
}

TEST_CASE("a reference in full precision leaves the cache of the int8 run open", "[gates]") {
  DumpMeta meta;
  meta.compute = "f64";
  meta.kv = "f64";
  const auto modes = modes_for(meta, KvType::kQ8);
  REQUIRE(modes.size() == 2);
  CHECK(modes[0].kv == KvType::kF32);
  CHECK(modes[1].compute == Compute::kInt8);
  CHECK(modes[1].kv == KvType::kQ8);
  meta.compute = "int8";
  for (const auto& [name, its] : {std::pair("f64", KvType::kF32),
                                  {"f32", KvType::kF32},
                                  {"f16", KvType::kF16},
                                  {"q8", KvType::kQ8}}) {
    meta.kv = name;
    for (const KvType kv : kKvTypes) CHECK(rounds_alike(meta, Compute::kInt8, kv) == (kv == its));
  }
}

}  // namespace llm::test
