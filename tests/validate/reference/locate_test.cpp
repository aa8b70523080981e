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

class Locating {
 public:
  explicit Locating(Compute compute)
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
  const Locating bench(GENERATE(Compute::kF32, Compute::kInt8));
  CHECK(names(bench.locate_reference(bench.clean())).empty());
  CHECK(check_hyper_parameters(bench.clean().meta(), bench.model().config()).empty());
  CHECK(require_ok(check_quantizer(bench.replay(), bench.clean())).empty());
}

TEST_CASE("the op that went wrong is named, not those it misled", "[locate]") {
  const Locating bench(Compute::kF32);
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
  const Locating bench(Compute::kF32);
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
  const Locating bench(Compute::kF32);
  const TapMatrix input = require_ok(bench.clean().tap(2, "ffn_inp"));
  const Dump bad = bench.spoiled(2, "l_out", [&](TapMatrix& m) { m = input; });
  const auto found = bench.locate_against_clean(bad);
  REQUIRE(names(found) == "L002/l_out ");
  CHECK_THAT(found.findings[0].signature, Contains("the values of L002/ffn_inp"));
  CHECK_THAT(location_text(found),
             Contains("1 op has an error of its own") && Contains("residual sum with ffn_out"));
}

TEST_CASE("steps of one token are told from batches", "[locate]") {
  const Locating bench(Compute::kF32);
  const Dump bad = bench.spoiled(0, "q", [](TapMatrix& q) {
    for (std::size_t i = 5 * q.features; i < q.values.size(); ++i) q.values[i] *= -1;
  });
  const auto found = bench.locate_against_clean(bad);
  REQUIRE(names(found) == "L000/q ");
  CHECK_THAT(found.findings[0].tokens, Contains("all from position 5 on"));
}

namespace {

/// A reference that differs from the model by what a wrong op would give: its likely cause.
template <typename Change>
std::string cause_of(const Locating& bench, int layer, std::string_view tap, const Change& change) {
  const auto found = bench.locate_reference(bench.spoiled(layer, tap, change));
  REQUIRE(names(found) == tap_label(layer, tap) + " ");
  return found.findings[0].cause;
}

/// Turns the pairs of every head of row t by as much as `angle` says of position t and pair i.
template <typename Angle>
auto turned(std::size_t head_dim, const Angle& angle) {
  return [=](TapMatrix& m) {
    for (std::size_t t = 0; t < m.rows; ++t) {
      for (std::size_t f = 0; f < m.features; f += 2) {
        const double by = angle(static_cast<double>(t), f % head_dim / 2);
        const auto x = static_cast<double>(m.row(t)[f]);
        const auto y = static_cast<double>(m.row(t)[f + 1]);
        m.row(t)[f] = static_cast<float>(x * std::cos(by) - y * std::sin(by));
        m.row(t)[f + 1] = static_cast<float>(x * std::sin(by) + y * std::cos(by));
      }
    }
  };
}

}  // namespace

TEST_CASE("the likely cause follows from the form and the size of the difference", "[locate]") {
  const Locating bench(Compute::kF32);
  const auto cause = [&](std::string_view tap, const auto& change) {
    return cause_of(bench, 1, tap, change);
  };
  const auto each = [](const auto& value) {
    return [=](TapMatrix& m) {
      for (std::size_t t = 0; t < m.rows; ++t)
        for (std::size_t f = 0; f < m.features; ++f) m.row(t)[f] = value(t, f, m.row(t)[f]);
    };
  };
  CHECK_THAT(cause("gate",
                   [](TapMatrix& m) {
                     for (float& v : m.row(3)) v = 1 - v;
                   }),
             StartsWith("the activations of those tokens"));
  CHECK_THAT(cause("gate", each([](auto, auto, float v) { return 2 * v; })),
             Contains("the scale of the weights"));
  CHECK_THAT(cause("gate",
                   [](TapMatrix& m) {
                     for (std::size_t t = 0; t < m.rows; ++t) std::ranges::reverse(m.row(t));
                   }),
             Contains("rows of the matrix are in another order"));
  CHECK_THAT(cause("gate", each([](auto, std::size_t f, float v) {
                     return v + std::sin(static_cast<float>(f));
                   })),
             StartsWith("the bias;"));
  const auto noisy = [&](float size) {
    return each([=](std::size_t t, std::size_t f, float v) {
      return v * (1 + size * std::sin(static_cast<float>(91 * t + 7 * f * f)));
    });
  };
  CHECK_THAT(cause("up", noisy(0.05F)), StartsWith("the same matrix with other errors"));
  CHECK_THAT(cause("up",
                   [](TapMatrix& m) {
                     for (std::size_t i = 0; i < m.values.size(); ++i)
                       m.values[i] = std::sin(static_cast<float>(i * i % 977));
                   }),
             StartsWith("another matrix"));
  CHECK_THAT(cause("ffn_norm", each([](auto, std::size_t f, float v) {
                     return v * (1.5F + std::sin(static_cast<float>(f)));
                   })),
             StartsWith("its weight;"));
  CHECK_THAT(cause("l_out", noisy(1e-4F)), StartsWith("the values are nearly right"));
  CHECK_THAT(cause("l_out", noisy(0.1F)), StartsWith("the values are right in part"));
}

TEST_CASE("exchanged tensors are recognised by the values of the other op", "[locate]") {
  const Locating bench(Compute::kF32);
  const TapMatrix gate = require_ok(bench.clean().tap(1, "gate"));
  const TapMatrix up = require_ok(bench.clean().tap(1, "up"));
  const Dump reference =
      rewritten(bench.clean(), bench.clean().meta(), [&](int l, std::string_view t, TapMatrix& m) {
        if (l == 1 && t == "gate") m = up;
        if (l == 1 && t == "up") m = gate;
        return true;
      });
  const auto found = bench.locate_reference(reference);
  REQUIRE(names(found).starts_with("L001/gate L001/up "));
  CHECK(found.findings[0].signature == "these are the values of L001/up");
  CHECK_THAT(found.findings[0].cause, StartsWith("the tensor of that op is bound in place"));
}

TEST_CASE("numbers that a reference was computed with are found", "[locate]") {
  const Locating bench(Compute::kF32);
  const HyperParameters& config = bench.model().config();
  const auto eps = static_cast<double>(config.norm_eps);
  const TapMatrix x = require_ok(bench.clean().tap(1, "ffn_inp"));
  CHECK_THAT(cause_of(bench, 1, "ffn_norm",
                      [&](TapMatrix& m) {
                        for (std::size_t t = 0; t < m.rows; ++t) {
                          const double ms = energy_of(x.row(t)) / static_cast<double>(x.features);
                          const double factor = std::sqrt((ms + eps) / (ms + 0.01));
                          for (float& v : m.row(t))
                            v = static_cast<float>(static_cast<double>(v) * factor);
                        }
                      }),
             StartsWith("eps: the reference's values follow from 0.01, the file has 1e-05;"));
  const std::size_t head_dim = config.attention(1).head_dim;
  const auto pairs = static_cast<double>(config.rope_pairs());
  const auto speed = [&](double base, std::size_t i) {
    return std::pow(base, -static_cast<double>(i) / pairs);
  };
  const auto found = [&](const auto& angle) {
    return cause_of(bench, 1, "q_rope", turned(head_dim, angle));
  };
  CHECK_THAT(
      found([&](double t, std::size_t i) { return t * (speed(5e5, i) - speed(1e4, i)); }),
      StartsWith("RoPE's base: the reference's values follow from 5e+05, the file has 1e+04;"));
  CHECK_THAT(found([&](double t, std::size_t i) { return t * speed(1e4, i) * (1 / 4.0 - 1); }),
             StartsWith("what divides RoPE's positions: the reference's values follow from 4, the "
                        "file has 1;"));
  CHECK_THAT(found([&](double, std::size_t i) { return speed(1e4, i); }),
             StartsWith("the positions, which are 1 less than the reference's;"));
  CHECK_THAT(found([&](double t, std::size_t i) { return t * (i % 2 == 0 ? 0.1 : 0.2); }),
             StartsWith("the angles: RoPE's base, what divides positions, or the positions;"));
}

TEST_CASE("attention's first token tells scores from values", "[locate]") {
  const Locating bench(Compute::kF32);
  const auto wrong_from = [&](std::size_t first) {
    return cause_of(bench, 2, "attn_ctx", [=](TapMatrix& m) {
      for (std::size_t i = first * m.features; i < m.values.size(); ++i)
        m.values[i] += 0.3F * std::sin(static_cast<float>(i));
    });
  };
  CHECK_THAT(wrong_from(1), StartsWith("the scores:"));
  CHECK_THAT(wrong_from(0), StartsWith("the values:"));
}

TEST_CASE("contradicting hyper-parameters are listed", "[locate]") {
  const Locating bench(Compute::kF32);
  DumpMeta meta = bench.clean().meta();
  meta.eps = 1e-6;
  meta.rope_theta = 500000;
  meta.numbers["attention_scale"] = 0.25;
  meta.numbers["rope.scale"] = 4;
  meta.numbers.erase("logit_scale");  // not stated
  const auto found = check_hyper_parameters(meta, bench.model().config());
  CHECK(found == std::vector<std::string>{
                     "attention.layer_norm_rms_epsilon is 1e-05 here, 1e-06 in the reference",
                     "rope.freq_base is 10000 here, 500000 in the reference",
                     "rope.scaling.factor is 1 here, 4 in the reference",
                     "attention.scale is 0.176777 here, 0.25 in the reference"});
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

TEST_CASE("factors and sums that tokens or features share", "[locate]") {
  const auto rows = signature_of(
      [](std::size_t r, auto, float v) { return v * (0.5F + 0.1F * static_cast<float>(r)); });
  CHECK(rows.kind == SignatureKind::kRowScale);
  CHECK_THAT(rows.text, Contains("0.5 to 0.9"));
  const auto features = signature_of(
      [](auto, std::size_t f, float v) { return v * (1.5F + std::sin(static_cast<float>(f))); });
  CHECK(features.kind == SignatureKind::kFeatureScale);
  const auto offset = signature_of(
      [](auto, std::size_t f, float v) { return v + std::sin(static_cast<float>(f)); });
  CHECK(offset.kind == SignatureKind::kOffset);
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
