// Locating errors on the embedded model: a run is recorded, one op's output changed as a bug would,
// everything after it computed on from there.

#include "validate/reference/fault_localization/locate.h"

#include "tests/validate/reference/transformers_run.h"
#include "validate/reference/diff/layer_diff.h"
#include "validate/reference/fault_localization/ideal_ops.h"

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

}  // namespace llm::test
