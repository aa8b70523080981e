// Locating errors on the embedded model: a run is recorded, one op's output changed as a bug would,
// everything after it computed on from there.

#include "validate/reference/fault_localization/locate.h"

#include "tests/validate/reference/transformers_run.h"
#include "validate/reference/diff/layer_diff.h"
#include "validate/reference/fault_localization/ideal_ops.h"
#include "validate/reference/fault_localization/locate_signature.h"

namespace llm::test {
namespace {

constexpr int kGlobal = ProbeSink::kGlobal;

class Bench {
 public:
  explicit Bench(Compute compute)
      : kv_(compute == Compute::kF32 ? KvType::kF32 : KvType::kF16),
        model_(require_ok(Model::load(LLM_SOURCE_DIR "/models/fable-3m-f16.gguf",
                                      {.compute = compute, .threads = 2}))),
        replay_(model_, kv_) {
    const std::int64_t steps[] = {0, 5, 6, 7};
    clean_ = std::make_unique<Dump>(
        recorded(model_, kv_, std::vector<TokenId>{1, 403, 407, 261, 899, 1200, 37}, steps));
  }

  /// The run with `change` applied to one op's output, and its consequences by the definition.
  template <typename Change>
  Dump spoiled(int layer, std::string_view tap, const Change& change) const {
    std::map<std::pair<int, std::string>, TapMatrix> taps;
    Dump last = assemble({});
    bool after = false;
    for (const auto& [row, l] : taps_of_model(model_->config())) {
      const std::pair key(l, std::string(row->name));
      if (l == layer && row->name == tap) {
        taps[key] = require_ok(clean_->tap(l, row->name));
        change(taps[key]);
        after = true;
      } else if (after) {
        taps[key] = *require_ok(replay_.run(last, l, row->name));
      }
      if (after) last = assemble(taps);
    }
    return last;
  }

  Location locate_against_clean(const Dump& run) const {
    return require_ok(locate(replay_, {.run = run, .reference = *clean_}));
  }
  Location locate_reference(const Dump& reference) const {
    return require_ok(locate(replay_, {.run = *clean_, .reference = reference}));
  }

  const Dump& clean() const { return *clean_; }
  const Replay& replay() const { return replay_; }
  const Model& model() const { return *model_; }

 private:
  /// Taps not in `taps` are the clean run's.
  Dump assemble(const std::map<std::pair<int, std::string>, TapMatrix>& taps) const {
    return rewritten(*clean_, clean_->meta(), [&](int l, std::string_view t, TapMatrix& m) {
      const auto found = taps.find({l, std::string(t)});
      if (found != taps.end()) m = found->second;
      return true;
    });
  }

  KvType kv_;
  std::shared_ptr<const Model> model_;
  Replay replay_;
  std::unique_ptr<Dump> clean_;
};

std::string names(const Location& location) {
  std::string out;
  for (const Finding& f : location.findings) out += tap_label(f.layer, f.tap) + " ";
  return out;
}

}  // namespace

TEST_CASE("a clean run has no op with an error of its own", "[locate]") {
  const Bench bench(GENERATE(Compute::kF32, Compute::kInt8));
  CHECK(names(bench.locate_reference(bench.clean())).empty());
  CHECK(check_hyper_parameters(bench.clean().meta(), bench.model().config()).empty());
  CHECK(require_ok(check_quantizer(bench.replay(), bench.clean())).empty());
}

TEST_CASE("the op that went wrong is named, not those it misled", "[locate]") {
  const Bench bench(Compute::kF32);
  const auto [layer, tap] = GENERATE(table<int, std::string>(
      {{kGlobal, "embd"}, {0, "v"}, {1, "attn_ctx"}, {2, "gate"}, {3, "l_out"}}));
  CAPTURE(layer, tap);
  const auto change = [](TapMatrix& m) { m.values[3 * m.features + 1] += 0.5F; };
  const Dump bad = bench.spoiled(layer, tap, change);
  const auto fast = bench.locate_against_clean(bad);
  REQUIRE(names(fast) == tap_label(layer, tap) + " ");
  CHECK_THAT(fast.findings[0].cause, Contains("fast path"));
  CHECK_THAT(fast.findings[0].tokens, Contains("1 of 7, the first at position 3"));
}

TEST_CASE("a reference that the definition cannot follow blames the definition", "[locate]") {
  const Bench bench(Compute::kF32);
  const auto change = [](TapMatrix& m) { m.values[5] *= 1.5F; };
  const Dump bad = bench.spoiled(1, "k", change);
  const auto found = bench.locate_reference(bad);
  REQUIRE(names(found) == "L001/k ");
  CHECK(found.findings[0].definition);
  CHECK(!found.findings[0].run);
  CHECK(found.findings[0].weight_type == "F16");
  CHECK_THAT(found.findings[0].op, Contains("blk.1.attn_k.weight"));
}

TEST_CASE("an input passed through is recognised", "[locate]") {
  const Bench bench(Compute::kF32);
  const TapMatrix input = require_ok(bench.clean().tap(2, "ffn_inp"));
  const Dump bad = bench.spoiled(2, "l_out", [&](TapMatrix& m) { m = input; });
  const auto found = bench.locate_against_clean(bad);
  REQUIRE(names(found) == "L002/l_out ");
  CHECK_THAT(found.findings[0].signature, Contains("the values of L002/ffn_inp"));
  CHECK_THAT(location_text(found),
             Contains("1 op has an error of its own") && Contains("residual sum with ffn_out"));
}

TEST_CASE("steps of one token are told from batches", "[locate]") {
  const Bench bench(Compute::kF32);
  const Dump bad = bench.spoiled(0, "q", [](TapMatrix& q) {
    for (std::size_t i = 5 * q.features; i < q.values.size(); ++i) q.values[i] *= -1;
  });
  const auto found = bench.locate_against_clean(bad);
  REQUIRE(names(found) == "L000/q ");
  CHECK_THAT(found.findings[0].tokens, Contains("all from position 5 on"));
}

TEST_CASE("contradicting hyper-parameters are listed", "[locate]") {
  const Bench bench(Compute::kF32);
  DumpMeta meta = bench.clean().meta();
  meta.eps = 1e-6;
  meta.rope_theta = 500000;
  const auto found = check_hyper_parameters(meta, bench.model().config());
  REQUIRE(found.size() == 2);
  CHECK_THAT(found[0], Contains("eps"));
  CHECK_THAT(found[1], Contains("rope_theta is 10000 here, 500000 in the reference"));
}

TEST_CASE("the quantizer's promise holds for its own rule and is a real bound", "[locate]") {
  std::vector<float> x;
  for (int i = 0; i < 1024; ++i) x.push_back(std::sin(0.1F * static_cast<float>(i * i % 977)));
  CHECK(quantization_fault(ActivationFormat::kQ8_K, x).empty());
  CHECK(quantization_fault(ActivationFormat::kQ8_32, x).empty());
  x[600] = std::numeric_limits<float>::infinity();
  CHECK_THAT(quantization_fault(ActivationFormat::kQ8_K, x), Contains("block 2"));
}

namespace {

constexpr std::size_t kRows = 5;
constexpr std::size_t kFeatures = 128;

/// Values that depend on row and feature, no two alike.
TapMatrix right(std::size_t features = kFeatures) {
  TapMatrix m{kRows, features, {}};
  for (std::size_t i = 0; i < kRows * features; ++i)
    m.values.push_back(std::sin(0.37F * static_cast<float>(i)) + 1e-3F * static_cast<float>(i));
  return m;
}

/// `change` gets row, feature and the right value.
template <typename Change>
TapMatrix wrong(const Change& change) {
  TapMatrix m = right();
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t f = 0; f < kFeatures; ++f) {
      float& value = m.values[r * kFeatures + f];
      value = change(r, f, value);
    }
  }
  return m;
}

/// What `change` makes of right values looks like.
template <typename Change>
Signature signature_of(const Change& change) {
  return find_signature(wrong(change), right());
}

}  // namespace

TEST_CASE("equal matrices have no signature", "[locate]") {
  CHECK(find_signature(right(), right()).kind == SignatureKind::kNone);
}

TEST_CASE("NaN and zeros are told apart from numbers", "[locate]") {
  TapMatrix m = right();
  m.values[7] = std::numeric_limits<float>::quiet_NaN();
  CHECK(find_signature(m, right()).kind == SignatureKind::kNonFinite);
  CHECK(signature_of([](auto, auto, float) { return 0.0F; }).kind == SignatureKind::kZero);
}

TEST_CASE("a factor without residual is a scale", "[locate]") {
  const auto found = signature_of([](auto, auto, float v) { return 5.65685F * v; });
  CHECK(found.kind == SignatureKind::kScale);
  CHECK_THAT(found.text, Contains("times 5.65685"));
  const auto noisy = wrong([](auto, std::size_t f, float v) { return f % 2 == 0 ? 2 * v : 3 * v; });
  CHECK(scale_signature(noisy, right(), 1e-9).kind == SignatureKind::kNone);
}

TEST_CASE("rows of a neighbouring position are a shift", "[locate]") {
  const auto shift = GENERATE(1, -1);
  const TapMatrix expected = right();
  const auto m = wrong([&](std::size_t r, std::size_t f, float) {
    const auto from = static_cast<std::size_t>(
        std::clamp<int>(static_cast<int>(r) + shift, 0, static_cast<int>(kRows) - 1));
    return expected.values[from * kFeatures + f];
  });
  const auto found = find_signature(m, expected);
  CHECK(found.kind == SignatureKind::kPositionShift);
  CHECK_THAT(found.text, Contains(shift > 0 ? "t + 1" : "t - 1"));
}

TEST_CASE("halves taken for pairs are a RoPE permutation, either way", "[locate]") {
  const SignatureOptions options{.head_dim = 32, .rope_dim = 32};
  TapMatrix pairs = right();
  half_to_interleaved(pairs, 32, 32);
  CHECK(find_signature(right(), pairs, options).kind == SignatureKind::kRopePermutation);
  CHECK(find_signature(pairs, right(), options).kind == SignatureKind::kRopePermutation);
  // Without heads to speak of it is a permutation like any other.
  const auto plain = find_signature(pairs, right());
  CHECK(plain.kind == SignatureKind::kPermutation);
  CHECK_THAT(plain.text, Contains("within runs of 32"));
}

TEST_CASE("values in another order within runs are a permutation", "[locate]") {
  const TapMatrix expected = right();
  const auto m = wrong([&](std::size_t r, std::size_t f, float) {
    return expected.values[r * kFeatures + (f ^ 8U)];
  });
  const auto found = find_signature(m, expected);
  CHECK(found.kind == SignatureKind::kPermutation);
  CHECK_THAT(found.text, Contains("within runs of 16"));
  const auto other = wrong([](std::size_t, std::size_t f, float v) { return f == 3 ? v + 1 : v; });
  CHECK(permutation_signature(other, expected, 1e-9).kind == SignatureKind::kNone);
}

TEST_CASE("a lost fifth bit is sixteen steps of the codes", "[locate]") {
  const auto code = [](std::size_t r, std::size_t f) { return (7 * r + 5 * f) % 32; };
  TapMatrix expected = right();
  TapMatrix actual = right();
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t f = 0; f < kFeatures; ++f) {
      const float scale = 0.01F * static_cast<float>(1 + f / 32);
      const std::size_t q = code(r, f);
      expected.values[r * kFeatures + f] = scale * static_cast<float>(q) - 0.1F;
      actual.values[r * kFeatures + f] = scale * static_cast<float>(f < 64 ? q : q & 15) - 0.1F;
    }
  }
  const auto found = find_signature(actual, expected);
  CHECK(found.kind == SignatureKind::kHighBit);
  CHECK_THAT(found.text, Contains("off by 16 steps"));
  const auto other = wrong([](auto, std::size_t f, float v) { return f % 5 == 0 ? 1.3F * v : v; });
  CHECK(high_bit_signature(other, right()).kind == SignatureKind::kNone);
}

TEST_CASE("where the wrong elements are", "[locate]") {
  const auto tail = signature_of([](auto, std::size_t f, float v) { return f >= 112 ? v + 1 : v; });
  CHECK(tail.kind == SignatureKind::kTail);
  CHECK_THAT(tail.text, Contains("from feature 112 of"));
  const auto period =
      signature_of([](auto, std::size_t f, float v) { return f % 32 >= 16 ? 2 * v + 1 : v; });
  CHECK(period.kind == SignatureKind::kPeriod);
  CHECK_THAT(period.text, Contains("repeat every 32"));
  const auto row = signature_of(
      [](std::size_t r, std::size_t f, float v) { return r == 3 && f < 90 ? 1 - v : v; });
  CHECK(row.kind == SignatureKind::kRows);
  CHECK_THAT(row.text, Contains("in 1 of 5 tokens: 3"));
  const auto feature =
      signature_of([](auto, std::size_t f, float v) { return f == 17 ? v + 0.5F : v; });
  CHECK(feature.kind == SignatureKind::kFeatures);
  CHECK_THAT(feature.text, Contains("only feature 17 of 128"));
  const auto all = signature_of([](auto, auto, float v) { return v * v + 2; });
  CHECK(all.kind == SignatureKind::kNone);
}

}  // namespace llm::test
