// The questions of --layer-diff on the embedded model and a frozen run of transformers: right
// things pass, one wrong thing fails where it belongs.

#include "quant/formats/activations.h"
#include "quant/formats/half.h"
#include "tests/validate/reference/transformers_run.h"
#include "validate/reference/fault_localization/ideal_ops.h"
#include "validate/reference/fault_localization/op_check.h"
#include "validate/reference/gates/drift.h"
#include "validate/reference/gates/layer_check.h"
#include "validate/report/layer_table.h"
#include "validate/report/text.h"

namespace llm::test {
namespace {

constexpr ComputeMode kF32{Compute::kF32, KvType::kF32};
constexpr ComputeMode kInt8{Compute::kInt8, KvType::kF16};

std::shared_ptr<const Model> model_in(Compute compute, const char* name = "fable-3m-f16.gguf") {
  return require_ok(Model::load(std::string(LLM_SOURCE_DIR "/models/") + name,
                                {.compute = compute, .threads = 2}));
}

/// `dump` again, with one tap changed.
template <typename Change>
Dump changed(const Dump& dump, int layer, std::string_view tap, const Change& change) {
  return rewritten(dump, dump.meta(), [&](int at, std::string_view name, TapMatrix& rows) {
    if (at == layer && name == tap) change(rows);
    return true;
  });
}

const DiffSection& named(const std::vector<DiffSection>& sections, std::string_view name) {
  const auto found = std::ranges::find(sections, name, &DiffSection::name);
  if (found == sections.end()) FAIL("no section " << name);
  return *found;
}

std::string verdicts(const std::vector<DiffSection>& sections) {
  std::string out;
  for (const DiffSection& s : sections)
    out += s.name + (!s.judged ? " shown" : s.passed() ? " PASS" : " FAIL") + "; ";
  return out;
}

}  // namespace

TEST_CASE("a clean run passes every question in both modes", "[gates]") {
  const Dump reference = transformers_run();
  const auto f32 = require_ok(check_layers(model_in(Compute::kF32), kF32, reference, {}));
  CHECK(verdicts(f32) == "f32-bits PASS; f32-ops PASS; f32-run PASS; ");
  const auto int8 = require_ok(check_layers(model_in(Compute::kInt8), kInt8, reference, {}));
  CHECK(verdicts(int8) == "int8-bits PASS; int8-ops PASS; int8-price shown; ");
  CHECK_THAT(named(int8, "int8-price").notes.at(0), Contains("KL") && Contains("of 5"));
}

TEST_CASE("one wrong value of one token fails its op alone", "[gates]") {
  const auto [mode, layer, tap] = GENERATE(table<bool, int, std::string>(
      {{true, 1, "gate"}, {false, 1, "k_rope"}, {true, 3, "l_out"}, {false, 2, "ffn_norm"}}));
  CAPTURE(mode, layer, tap);
  const ComputeMode compute = mode ? kF32 : kInt8;
  const Dump reference = changed(transformers_run(), layer, tap, [](TapMatrix& m) {
    const double rms =
        std::sqrt(std::inner_product(m.values.begin(), m.values.end(), m.values.begin(), 0.0) /
                  static_cast<double>(m.values.size()));
    m.values[4 * m.features + 1] += static_cast<float>(rms / 100);
  });
  const auto sections = require_ok(check_layers(model_in(compute.compute), compute, reference, {}));
  const DiffSection& ops = named(sections, mode_name(compute) + "-ops");
  REQUIRE(!ops.passed());
  CHECK(named(sections, mode_name(compute) + "-bits").passed());
  REQUIRE(!ops.location.findings.empty());
  CHECK(ops.location.findings[0].layer == layer);
  CHECK(ops.location.findings[0].tap == tap);
  CHECK(ops.location.findings[0].definition);
  CHECK(!ops.location.findings[0].run);
}

TEST_CASE("of a large model the definition computes some tokens, and says so", "[gates]") {
  const auto model = model_in(Compute::kF32);
  std::vector<TokenId> tokens = some_tokens(90);
  for (TokenId& id : tokens) id %= static_cast<TokenId>(model->config().n_vocab);
  const Dump own = recorded(model, KvType::kF32, tokens);
  LayerCheckOptions options;
  options.budget = 1;
  const auto clean = require_ok(check_layers(model, kF32, own, options));
  CHECK(verdicts(clean) == "f32-bits PASS; f32-ops PASS; f32-run PASS; ");
  CHECK_THAT(named(clean, "f32-ops").notes.at(0), Contains("4 of 90 tokens"));
  // The last token is always among them.
  const Dump bad = changed(own, 2, "attn_ctx", [](TapMatrix& m) { m.values.back() *= 2; });
  const auto sections = require_ok(check_layers(model, kF32, bad, options));
  REQUIRE(!named(sections, "f32-ops").passed());
  CHECK_THAT(named(sections, "f32-ops").location.findings[0].tokens, Contains("position 89"));
}

TEST_CASE("NaN in a reference or a run fails where it is", "[gates]") {
  const auto nan = [](TapMatrix& m) { m.values[7] = std::numeric_limits<float>::quiet_NaN(); };
  const Dump reference = changed(transformers_run(), 2, "v", nan);
  const auto sections = require_ok(check_layers(model_in(Compute::kF32), kF32, reference, {}));
  CHECK(named(sections, "f32-bits").passed());
  const DiffSection& ops = named(sections, "f32-ops");
  REQUIRE(ops.diff.first_failing);
  CHECK(ops.diff.rows[*ops.diff.first_failing].tap == "v");
  CHECK_THAT(ops.diff.rows[*ops.diff.first_failing].note, Contains("NaN"));
}

TEST_CASE("NaN that the definition gives as well is no pass", "[gates]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const TapMatrix m{1, 2, {1, nan}};
  CHECK(same_bits(m, m));
  const OpOutput output{.actual = m, .expected = m, .row_limits = {0}, .why = "equal bits"};
  const LayerDiffRow row = judge(0, *find_tap(0, "gate"), output);
  CHECK(row.verdict == TapVerdict::kFail);
  CHECK_THAT(row.note, Contains("1 NaN or Inf here, 1 expected"));
}

/// The transformers run with nothing but its logits, which `change` may spoil.
template <typename Change>
Dump logits_alone(const Change& change) {
  const Dump dump = transformers_run();
  DumpMeta meta = dump.meta();
  for (const Tap& tap : kTaps)
    if (tap.name != "logits") meta.taps_absent[std::string(tap.name)] = "not kept";
  return rewritten(dump, meta, [&](int, std::string_view name, TapMatrix& rows) {
    if (name == "logits") change(rows);
    return name == "logits";
  });
}

TEST_CASE("a reference of logits alone is judged by the free run", "[gates]") {
  const auto model = model_in(Compute::kF32);
  const Dump clean = logits_alone([](TapMatrix&) {});
  CHECK(verdicts(require_ok(check_layers(model, kF32, clean, {}))) ==
        "f32-bits PASS; f32-ops shown; f32-run PASS; ");
  const Dump bad = logits_alone([](TapMatrix& m) {
    for (float& x : m.values) x *= 1.0001F;
  });
  const auto sections = require_ok(check_layers(model, kF32, bad, {}));
  CHECK(!named(sections, "f32-run").passed());
  CHECK(named(sections, "f32-run").diff.rows.back().verdict == TapVerdict::kFail);
}

TEST_CASE("a run of this engine in int8 is held against int8", "[gates]") {
  const auto model = model_in(Compute::kInt8, "fable-3m-q4_k_m.gguf");
  const std::vector<TokenId> tokens = {1, 403, 407, 261, 899, 1200, 37};
  const Dump own = recorded(model, KvType::kF16, tokens);
  const auto modes = modes_for(own.meta());
  REQUIRE(modes.size() == 1);
  CHECK(modes[0].compute == Compute::kInt8);
  CHECK(modes[0].kv == KvType::kF16);
  const auto sections = require_ok(check_layers(model, modes[0], own, {}));
  CHECK(verdicts(sections) == "int8-bits PASS; int8-ops PASS; int8-price shown; ");
  CHECK_THAT(named(sections, "int8-ops").title, Contains("the reference's output on its inputs"));
  // Against the reference itself: a fault that engine and definition share shows.
  const Dump bad = changed(own, 1, "gate", [](TapMatrix& m) { m.values[3] *= 1.001F; });
  CHECK(!named(require_ok(check_layers(model, modes[0], bad, {})), "int8-ops").passed());
}

TEST_CASE("a price far above the expected one is called unusual", "[gates]") {
  const Dump dump = transformers_run();
  LayerDiffRow row{.layer = ProbeSink::kGlobal, .tap = "logits", .verdict = TapVerdict::kShown};
  row.error.nmse = 9e-6;
  row.limits = {{"*", Metric::kNmse, 1e-6, "expected"}};
  CHECK(require_ok(logits_notes(dump, dump, row)).size() == 1);
  row.error.nmse = 2e-5;
  const auto notes = require_ok(logits_notes(dump, dump, row));
  REQUIRE(notes.size() == 2);
  CHECK_THAT(notes[0], Contains("KL 0.0e+00") && Contains("100.0 % of 5"));
  CHECK_THAT(notes[1], Contains("unusual: 20 x"));
}

TEMPLATE_TEST_CASE("rounding written a second time equals the definition's", "[gates]", BlockQ8_K,
                   BlockQ8_32) {
  constexpr std::size_t kBlock = TestType::kWeights;
  const auto format = kBlock == 256 ? ActivationFormat::kQ8_K : ActivationFormat::kQ8_32;
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> x(8 * kBlock);
  for (float& v : x) v = normal(random) * std::exp(3 * normal(random));
  std::fill_n(x.begin() + kBlock, kBlock, 0.0F);
  const RoundedRow rounded = round_activations(format, x);
  for (std::size_t begin = 0; begin < x.size(); begin += kBlock) {
    TestType block;
    quantize_block(std::span(x).subspan(begin).template first<kBlock>(), block);
    CHECK(static_cast<double>(block.d) == rounded.steps[begin / kBlock]);
    for (std::size_t i = 0; i < kBlock; ++i) {
      const double value = rounded.values[begin + i];
      REQUIRE(value == static_cast<double>(block.d) * block.qs[i]);
      REQUIRE(std::abs(value - static_cast<double>(x[begin + i])) <=
              0.5001 * static_cast<double>(block.d));
    }
  }
}

TEST_CASE("rounding to f16 written a second time equals the definition's", "[gates]") {
  std::vector<float> values = {0.0F,          -0.0F,          65504.0F,
                               65519.9F,      65520.0F,       -70000.0F,
                               5.9604645e-8F, 2.9802322e-8F,  2.98023224e-8F * 1.0000002F,
                               1e-10F,        1.00048828125F, 1.00146484375F,
                               6.1035156e-5F, 6.0975552e-5F};
  std::mt19937 random(3);
  for (int i = 0; i < 20000; ++i) {
    const float v = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isfinite(v)) values.push_back(v);
    values.push_back(std::ldexp(1.0F + static_cast<float>(random() % 8192) / 4096,
                                static_cast<int>(random() % 40) - 26));
  }
  for (const float v : values) {
    CAPTURE(v);
    REQUIRE(round_to_half(v) == static_cast<double>(f16_to_f32(f32_to_f16(v))));
  }
}

TEST_CASE("more noise drifts further, and equal seeds drift alike", "[gates]") {
  const auto model = model_in(Compute::kF32);
  const std::vector<TokenId> tokens = {1, 403, 407, 261, 899};
  const Dump clean = recorded(model, KvType::kF32, tokens);
  const auto at_logits = [&](double noise) {
    OpNoise all;
    for (const auto& [tap, layer] : taps_of_model(model->config()))
      all[{layer, std::string(tap->name)}] = noise;
    const OpNoise drift = require_ok(measure_drift({model, tokens, {}, clean, all}, 2));
    return drift.at({ProbeSink::kGlobal, "logits"});
  };
  const double little = at_logits(1e-12);
  CHECK(little > 1e-12);
  CHECK(little < 1e-9);
  CHECK(at_logits(1e-12) == little);
  CHECK(at_logits(1e-8) == Approx(1e4 * little).epsilon(0.25));
}

TEST_CASE("the noise of rounding is predicted to some percent", "[gates]") {
  const auto f32 = model_in(Compute::kF32, "fable-3m-q4_k_m.gguf");
  const Replay replay(require_ok(f32->variant({.compute = Compute::kInt8})), KvType::kF16);
  const Dump clean = recorded(f32, KvType::kF32, some_tokens(40));
  const OpNoise predicted = require_ok(rounding_noise(replay, clean));
  for (const std::string tap : {"q", "gate", "ffn_out"}) {
    CAPTURE(tap);
    const auto rounded = require_ok(replay.run(clean, 1, tap));
    const TapMatrix exact = require_ok(clean.tap(1, tap));
    const double actual = nmse(rounded->values, exact.values);
    CHECK(actual / predicted.at({1, tap}) == Approx(1).margin(0.4));
  }
}

TEST_CASE("a clean report of 22 layers fits on a screen, verdict first", "[gates][report]") {
  Report report;
  for (const char* fact : {"llmcheck", "model", "sha256", "CPU", "reference"})
    report.facts.push_back({fact, "x"});
  report.summary = "the model computes what the reference says";
  report.next = {"llmcheck m.gguf --self"};
  for (const char* name :
       {"f32-bits", "f32-ops", "f32-run", "int8-bits", "int8-ops", "int8-price"}) {
    DiffSection section{.title = "f32: a question", .name = name, .diff = {}};
    section.judged = section.name != "int8-price";
    section.notes = {"the definition computed 4 of 28 tokens"};
    if (!section.judged) section.notes = {"logits", "products"};
    for (const auto& [tap, layer] : taps_of_model(22)) {
      LayerDiffRow row{.layer = layer, .tap = std::string(tap->name)};
      row.error.nmse = row.error.row_nmse = 1e-13;
      row.limits = {{"*", Metric::kRowNmse, 1e-10, "s"}};
      if (!section.judged) row.verdict = TapVerdict::kShown;
      section.diff.rows.push_back(row);
    }
    report.diffs.push_back(section);
  }
  const std::string text = text_report(report);
  CHECK(std::ranges::count(text, '\n') <= 40);
  CHECK(text.starts_with("PASS  the model computes"));
  CHECK_THAT(text, Contains("next: llmcheck m.gguf --self") && Contains("1000 x"));
  CHECK_THAT(text, !Contains("compared"));
  CHECK(std::ranges::count(text_report(report, {.verbose = true}), '\n') > 1400);
  // What was left out is said in the line of the verdict.
  std::vector<LayerDiffRow>& rows = report.diffs[2].diff.rows;
  for (LayerDiffRow& row : std::span(rows).first(rows.size() - 1))
    row.verdict = TapVerdict::kAbsent;
  CHECK_THAT(text_report(report),
             Contains("G/logits 1.0e-13, 1000 x inside (1 of 333 taps compared)"));
  report.diffs[1].diff.rows[40].verdict = TapVerdict::kFail;
  report.diffs[1].diff.first_failing = 40;
  const std::string failed = text_report(report);
  CHECK(failed.starts_with("FAIL"));
  CHECK_THAT(failed, Contains("the first is L002/") && !Contains("\033["));
  CHECK_THAT(text_report(report, {.color = true}), Contains("\033[31mFAIL"));
}

}  // namespace llm::test
