#include "validate/reference/diff/layer_diff.h"

#include "tests/validate/reference/fake_dump.h"
#include "validate/reference/diff/metrics.h"
#include "validate/report/text.h"

namespace llm::test {
namespace {

Limit limit(std::string_view probe, Metric metric, double bound) {
  return Limit{std::string(probe), metric, bound, "test"};
}

const Limits kTight({limit("*", Metric::kNmse, 1e-9)});

LayerDiff diff(const Dump& actual, const Dump& reference, const Limits& limits = kTight) {
  return require_ok(diff_layers(actual, reference, limits));
}

Dump record(const FakeModel::Edit& edit = {}, const DumpMeta& meta = fake_meta(),
            const std::vector<std::size_t>& steps = {6}) {
  return require_ok(FakeModel().record(steps, edit, meta));
}

FakeModel::Edit change(int layer, std::string_view tap, float by) {
  return [=](int l, std::string_view t, std::vector<float>& values) {
    if (l == layer && t == tap) values[11] += by;
    return true;
  };
}

FakeModel::Edit drop(int layer, std::string_view tap) {
  return [=](int l, std::string_view t, std::vector<float>&) { return l != layer || t != tap; };
}

std::string first_failing(const LayerDiff& d) {
  if (!d.first_failing) return "none";
  return tap_label(d.rows[*d.first_failing].layer, d.rows[*d.first_failing].tap);
}

}  // namespace

TEST_CASE("equal dumps pass, however they were split into steps", "[layer_diff]") {
  const auto d = diff(record({}, fake_meta(), {2, 1, 3}), record());
  CHECK(d.passed());
  REQUIRE(d.rows.size() == 3 + 15 * FakeModel::kLayers);
  CHECK(d.rows.front().tap == "embd");
  CHECK(d.rows[1].tap == "attn_norm");
  CHECK(d.rows.back().tap == "logits");
  CHECK_THAT(layer_diff_table(d), Contains("PASS: 33 taps"));
}

TEST_CASE("the first failing tap in the order of the data flow is named", "[layer_diff]") {
  const auto edit = [](int layer, std::string_view tap, std::vector<float>& values) {
    if (tap == "logits" || (layer == 1 && (tap == "v" || tap == "attn_ctx"))) values[11] += 0.5F;
    return true;
  };
  const auto d = diff(record(edit), record());
  CHECK(!d.passed());
  CHECK(first_failing(d) == "L001/v");
  const auto table = layer_diff_table(d);
  CHECK_THAT(table,
             Contains("FAIL: 3 of 33 taps; the first is L001/v") && Contains("token 1, feature 3"));
}

TEST_CASE("every single tap is looked at", "[layer_diff]") {
  const auto reference = record();
  for (const auto& [row, layer] : taps_of_model(FakeModel::kLayers)) {
    const std::string tap(row->name);
    CAPTURE(layer, tap);
    CHECK(first_failing(diff(record(change(layer, tap, 0.01F)), reference)) ==
          tap_label(layer, tap));
    CHECK(diff(record(change(layer, tap, 1e-7F)), reference).passed());
  }
}

TEST_CASE("a missing tap fails on either side", "[layer_diff]") {
  const auto here = diff(record(drop(1, "up")), record());
  CHECK(first_failing(here) == "L001/up");
  CHECK(here.rows[*here.first_failing].verdict == TapVerdict::kMissing);
  CHECK(!here.passed());
  const auto there = diff(record(), record(drop(0, "gate")));
  CHECK(first_failing(there) == "L000/gate");
  CHECK(!there.passed());
}

TEST_CASE("only the reference may declare a tap absent", "[layer_diff]") {
  DumpMeta meta = fake_meta();
  meta.taps_absent = {{"q_rope", "not hooked"}};
  const auto no_q_rope = [](int, std::string_view tap, std::vector<float>&) {
    return tap != "q_rope";
  };
  const auto declared = diff(record(), record(no_q_rope, meta));
  CHECK(declared.passed());
  CHECK_THAT(layer_diff_table(declared), Contains("absent  not hooked"));
  CHECK(!diff(record(no_q_rope, meta), record()).passed());
}

TEST_CASE("a remark says which vocabularies differ, and what is unknown", "[layer_diff]") {
  const auto remarks = [](const std::string& tokens, const std::string& merges,
                          const std::string& other_tokens, const std::string& other_merges) {
    DumpMeta meta = fake_meta();
    meta.tokenizer_hash = tokens;
    meta.merges_hash = merges;
    DumpMeta other = fake_meta();
    other.tokenizer_hash = other_tokens;
    other.merges_hash = other_merges;
    const auto found = diff(record({}, meta), record({}, other));
    CHECK(found.passed());
    return found.remarks;
  };
  using Remarks = std::vector<std::string>;
  CHECK(remarks("a1", "b1", "a1", "b1") == Remarks{});
  CHECK(remarks("a1", "", "a1", "") == Remarks{});
  CHECK(remarks("a1", "b1", "", "") == Remarks{});  // a reference without a vocabulary
  CHECK(remarks("a1", "b1", "a2", "b2") == Remarks{"the vocabularies differ (tokenizer_hash)"});
  CHECK(remarks("a1", "b1", "a1", "b2") ==
        Remarks{"the merges or the pre-tokenizers differ (merges_hash)"});
  const auto earlier = remarks("a1", "b1", "a1", "");
  REQUIRE(earlier.size() == 1);
  CHECK_THAT(earlier[0], Contains("the reference has no merges_hash") && Contains("unknown"));
  CHECK_THAT(remarks("a1", "", "a1", "b1").at(0), Contains("this dump has no merges_hash"));
}

TEST_CASE("a whole layer that is absent is missed", "[layer_diff]") {
  DumpMeta meta = fake_meta();
  meta.n_layers = 3;
  const auto reference = record({}, meta);
  CHECK(first_failing(diff(record(), reference)) == "L002/attn_norm");
  const ScratchDirectory folder;
  REQUIRE(reference.write(folder / "f.npz").ok());
  const auto loaded = require_ok(Dump::load(folder / "f.npz"));
  CHECK(first_failing(diff(record(), loaded)) == "L002/attn_norm");
  const auto more = diff(record({}, meta), record());
  CHECK(!more.passed());
  REQUIRE(more.problems.size() == 1);
  CHECK_THAT(more.problems[0], Contains("3 layers here, 2 in the reference"));
}

TEST_CASE("NaN on either side fails and is counted", "[layer_diff]") {
  const auto nan = change(0, "k", std::numeric_limits<float>::quiet_NaN());
  CHECK_THAT(layer_diff_table(diff(record(nan), record())), Contains("1 NaN or Inf here, 0 in"));
  CHECK_THAT(layer_diff_table(diff(record(), record(nan))), Contains("0 NaN or Inf here, 1 in"));
  CHECK(!diff(record(nan), record(nan)).passed());
}

TEST_CASE("other tokens or positions are a problem, not a difference", "[layer_diff]") {
  Recorder recorder;
  const std::vector<int> tokens = {100, 101, 7, 103, 104, 105};
  recorder.begin_step(tokens, 1);
  const auto other = require_ok(std::move(recorder).finish(fake_meta()));
  const auto d = diff(other, record());
  CHECK(!d.passed());
  REQUIRE(d.problems.size() == 2);
  CHECK_THAT(d.problems[0], Contains("tokens differ at index 2: 7 here, 102"));
  CHECK_THAT(d.problems[1], Contains("positions differ at index 0: 1 here, 0"));
}

TEST_CASE("q and k of the two layouts are compared in one order", "[layer_diff]") {
  // interleaved[2 i + j] = half[j * 4 + i] in heads of 8: no two of that are the order before.
  const auto to_half = [](int, std::string_view tap, std::vector<float>& values) {
    if (tap != "q" && tap != "k" && tap != "q_rope" && tap != "k_rope") return true;
    const std::vector<float> before = values;
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = before[i / 8 * 8 + i % 4 * 2 + i / 4 % 2];
    return true;
  };
  DumpMeta pairs = fake_meta();
  pairs.head_dim = pairs.rope_dim = 8;
  DumpMeta half = pairs;
  half.qk_layout = "half";
  CHECK(diff(record({}, pairs), record(to_half, half)).passed());
  CHECK(diff(record(to_half, half), record({}, pairs)).passed());
  CHECK(diff(record(to_half, half), record(to_half, half)).passed());
  CHECK(first_failing(diff(record({}, pairs), record(to_half, pairs))) == "L000/q");
  half.head_dim = 0;
  DumpMeta unknown = fake_meta();
  unknown.head_dim = 0;
  const auto d = diff(record({}, unknown), record(to_half, half));
  CHECK(first_failing(d) == "L000/q");
  CHECK_THAT(layer_diff_table(d), Contains("qk_layout half needs"));
  // An odd head has no halves, whether the file says so or leaves it to be concluded.
  half.head_dim = 1;
  half.rope_dim = 0;
  unknown.rope_dim = 0;
  CHECK_THAT(layer_diff_table(diff(record({}, unknown), record(to_half, half))),
             Contains("qk_layout half needs"));
}

TEST_CASE("partial RoPE reorders only the leading features", "[layer_diff]") {
  TapMatrix matrix{1, 6, {0, 1, 2, 3, 4, 5}};
  half_to_interleaved(matrix, 6, 4);
  CHECK(matrix.values == std::vector<float>{0, 2, 1, 3, 4, 5});
  matrix.values = {0, 1, 2, 3, 4, 5};
  half_to_interleaved(matrix, 6, 6);
  CHECK(matrix.values == std::vector<float>{0, 3, 1, 4, 2, 5});
}

TEST_CASE("the last fitting limit counts, and none is a failure", "[layer_diff]") {
  const auto actual = record(change(1, "gate", 0.01F));
  const auto with = [&](std::vector<Limit> rules) {
    return diff(actual, record(), Limits(std::move(rules)));
  };
  const Limit all = limit("*", Metric::kNmse, 1e-9);
  CHECK(!with({all}).passed());
  CHECK(with({all, limit("gate", Metric::kNmse, 1e-3)}).passed());
  CHECK(with({all, limit("L001/gate", Metric::kNmse, 1e-3)}).passed());
  CHECK(!with({all, limit("L000/gate", Metric::kNmse, 1e-3)}).passed());
  CHECK(!with({limit("gate", Metric::kNmse, 1e-3), all}).passed());
  CHECK(
      !with({all, limit("gate", Metric::kNmse, 1e-3), limit("*", Metric::kMaxAbs, 1e-4)}).passed());
  CHECK(!with({limit("gate", Metric::kNmse, 1e-3)}).passed());
  CHECK(!with({limit("*", Metric::kNmse, std::numeric_limits<double>::quiet_NaN())}).passed());
  CHECK(with({all, limit("gate", Metric::kNmse, 1e-3), limit("*", Metric::kCosineLoss, 1e-3)})
            .passed());
}

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfF = std::numeric_limits<float>::infinity();
constexpr double kInf = std::numeric_limits<double>::infinity();
using Vector = std::vector<float>;

}  // namespace

TEST_CASE("nmse is the error's share of the reference's energy", "[metrics]") {
  CHECK(nmse(Vector{1, 2, 3}, Vector{1, 2, 3}) == 0);
  CHECK(nmse(Vector{3, 4}, Vector{3, 5}) == 1.0 / 34);
  CHECK(nmse(Vector{0, 0}, Vector{3, 4}) == 1);
  CHECK(nmse(Vector{0, 0}, Vector{0, 0}) == 0);
  CHECK(nmse(Vector{0, 1e-30F}, Vector{0, 0}) == kInf);
  CHECK(nmse(Vector{3e38F, 0}, Vector{-3e38F, 0}) == 4);  // f32 squares would overflow
}

TEST_CASE("non-finite values fail every metric", "[metrics]") {
  const auto bad = GENERATE(values<float>({kNan, kInfF, -kInfF}));
  for (const auto& [a, e] :
       {std::pair(Vector{1, bad}, Vector{1, 2}), std::pair(Vector{1, 2}, Vector{1, bad}),
        std::pair(Vector{1, bad}, Vector{1, bad})}) {
    CHECK(nmse(a, e) == kInf);
    CHECK(max_abs_difference(a, e) == kInf);
    CHECK(cosine(a, e) == -1);
    const TapError error = compare(a, e, 2);
    CHECK(error.nmse == kInf);
    CHECK(error.max_abs == kInf);
    CHECK(error.cos_min == -1);
    CHECK(error.worst_feature == 1);
    CHECK(error.nonfinite_actual + error.nonfinite_expected >= 1);
  }
}

TEST_CASE("cosine depends on direction only", "[metrics]") {
  CHECK(cosine(Vector{1, 0}, Vector{5, 0}) == 1);
  CHECK(cosine(Vector{1, 0}, Vector{0, 2}) == 0);
  CHECK(cosine(Vector{1, 1}, Vector{-2, -2}) == Approx(-1));
  CHECK(cosine(Vector{0, 0}, Vector{0, 0}) == 1);
  CHECK(cosine(Vector{0, 0}, Vector{0, 1}) == 0);
}

TEST_CASE("percentiles are by nearest rank", "[metrics]") {
  std::vector<double> values;
  for (int i = 1; i <= 40; ++i) values.push_back(i);
  CHECK(nearest_rank(values, 0) == 1);
  CHECK(nearest_rank(values, 0.05) == 2);
  CHECK(nearest_rank(values, 0.051) == 3);
  CHECK(nearest_rank(values, 0.5) == 20);
  CHECK(nearest_rank(values, 1) == 40);
  CHECK(nearest_rank(std::vector<double>{7}, 0.5) == 7);
}

TEST_CASE("compare finds the worst element and row", "[metrics]") {
  Vector expected(20 * 4);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<float>(i % 7) + 1;
  Vector actual = expected;
  actual[13 * 4 + 2] = -3;
  const TapError error = compare(actual, expected, 4);
  CHECK(error.worst_row == 13);
  CHECK(error.worst_feature == 2);
  CHECK(error.worst_actual == -3);
  CHECK(error.worst_expected == expected[54]);
  CHECK(error.max_abs == static_cast<double>(expected[54] + 3));
  CHECK(error.cos_min < 0.9);
  CHECK(error.cos_p5 == error.cos_min);  // one row of 20 is exactly 5 %
  CHECK(error.cos_median == Approx(1));
  CHECK(error.snr_db == Approx(-10 * std::log10(error.nmse)));
  CHECK(compare(expected, expected, 4).snr_db == kInf);
}

}  // namespace llm::test
