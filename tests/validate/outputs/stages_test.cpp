// llmcheck --stages on the embedded model and a frozen run of transformers. Stages that no wrong
// reference can make the first to fail are tried with faults (tests/fault_injection).

#include "validate/outputs/stages/stages.h"

#include "tests/validate/reference/fake_dump.h"
#include "tests/validate/reference/transformers_run.h"

namespace llm::test {
namespace {

Result<std::shared_ptr<const Model>> load(Compute compute) {
  return Model::load(LLM_SOURCE_DIR "/models/fable-3m-f16.gguf",
                     {.compute = compute, .threads = 1});
}

/// The run again with a tap's last value wrong; `keep` says which taps are there at all.
template <typename Keep>
Dump changed(
    int layer, std::string_view tap, const Keep& keep,
    const std::function<void(DumpMeta&)>& change = [](DumpMeta&) {}) {
  const Dump dump = transformers_run();
  DumpMeta meta = dump.meta();
  for (const auto& [row, at] : taps_of_model(dump.flow()))
    if (!keep(at, row->name) && at != 3) meta.taps_absent[std::string(row->name)] = "left out";
  change(meta);
  return rewritten(dump, meta, [&](int at, std::string_view name, TapMatrix& rows) {
    if (at == layer && name == tap) rows.values.back() += 1;
    return keep(at, name);
  });
}
bool all(int, std::string_view) { return true; }

StagesOutcome stages_of(const Dump& reference) {
  return require_ok(check_stages(
      load, reference, {.modes = modes_for(reference.meta()), .model_sha256 = {}, .progress = {}}));
}

/// "PASS FAIL UNDECIDED ..."
std::string verdicts(const StagesOutcome& outcome) {
  std::string out;
  for (const CheckResult& check : outcome.checks)
    out += (out.empty() ? "" : " ") + std::string(verdict_name(check.verdict()));
  return out;
}

}  // namespace

TEST_CASE("a right model passes every stage", "[stages]") {
  const StagesOutcome outcome = stages_of(transformers_run());
  CHECK(verdicts(outcome) == "PASS PASS PASS PASS PASS PASS");
  CHECK(outcome.checks[3].name == "stage 4, second token (KV cache)");
  CHECK(outcome.not_covered.empty());
}

TEST_CASE("the first stage that fails is named with tap, op and where to look", "[stages]") {
  const auto [layer, tap, failing, words] =
      GENERATE(table<int, std::string, std::size_t, std::string>(
          {{ProbeSink::kGlobal, "embd", 0, "token_embd.weight"},
           {0, "gate", 1, "L000/gate"},
           {2, "v", 2, "L002/v"},
           {ProbeSink::kGlobal, "logits", 4, "G/logits"}}));
  CAPTURE(layer, tap);
  const StagesOutcome outcome = stages_of(changed(layer, tap, all));
  REQUIRE(outcome.checks.size() == kStages);
  for (std::size_t i = 0; i < failing; ++i) CHECK(outcome.checks[i].passed);
  CHECK(outcome.checks[failing].verdict() == Verdict::kFail);
  CHECK_THAT(outcome.checks[failing].detail,
             Contains(words) && Contains("look at: ") &&
                 Contains(std::string(stage_hint(static_cast<Stage>(failing)))));
  for (std::size_t i = failing + 1; i < kStages; ++i)
    CHECK(outcome.checks[i].verdict() != Verdict::kFail);
}

TEST_CASE("what follows from a failing stage is undecided and says so", "[stages]") {
  const StagesOutcome outcome = stages_of(changed(0, "l_out", all));
  CHECK(outcome.checks[1].verdict() == Verdict::kFail);
  REQUIRE(outcome.checks[2].verdict() == Verdict::kUndecided);
  CHECK_THAT(outcome.checks[2].detail, Contains("may be caused by stage 2"));
}

TEST_CASE("stages that a reference has nothing for are not covered", "[stages]") {
  const StagesOutcome outcome = stages_of(changed(0, "none", [](int, std::string_view tap) {
    return tap == "logits" || tap == "result_norm";
  }));
  CHECK(verdicts(outcome).find("FAIL") == std::string::npos);
  REQUIRE(outcome.not_covered.size() == 3);
  CHECK_THAT(outcome.not_covered[0], Contains("stage 1, embedding"));
  CHECK_THAT(outcome.not_covered[2], Contains("stage 3, all layers"));
}

TEST_CASE("logits that are not the model's fail in int8, and two stages alone are no PASS",
          "[stages]") {
  const auto outcome_of = [](const std::function<void(std::span<float> row)>& change) {
    const Dump dump = transformers_run();
    DumpMeta meta = dump.meta();
    meta.compute = "int8";
    for (const auto& [row, at] : taps_of_model(dump.flow()))
      if (row->name != "logits") meta.taps_absent[std::string(row->name)] = "left out";
    return stages_of(rewritten(dump, meta, [&](int, std::string_view name, TapMatrix& rows) {
      for (std::size_t t = 0; t < rows.rows && name == "logits"; ++t)
        change(std::span(rows.values).subspan(t * rows.features, rows.features));
      return name == "logits";
    }));
  };
  const StagesOutcome right = outcome_of([](std::span<float>) {});
  CHECK(verdicts(right) == "PASS PASS UNDECIDED");
  CHECK(right.checks[0].name == "stage 5, logits");
  CHECK_THAT(right.checks.back().detail, Contains("2 of 6, need 3"));
  CHECK(right.not_covered.size() == 4);
  const auto scaled = [](float by) {
    return [by](std::span<float> row) {
      for (float& x : row) x *= by;
    };
  };
  const auto one_hot = [](std::span<float> row) {
    const auto top = std::ranges::max_element(row) - row.begin();
    std::ranges::fill(row, 0.0F);
    row[static_cast<std::size_t>(top)] = 20;
  };
  for (const StagesOutcome& wrong :
       {outcome_of(scaled(2)), outcome_of(scaled(0.9F)), outcome_of(one_hot)}) {
    CHECK(verdicts(wrong).starts_with("FAIL "));
    CHECK_THAT(wrong.checks[0].detail, Contains("int8 logits: nmse") && Contains("limit"));
  }
}

TEST_CASE("a reference of another number of layers fails the first stage", "[stages]") {
  const StagesOutcome outcome = stages_of(changed(
      0, "none", [](int layer, std::string_view) { return layer != 3; },
      [](DumpMeta& meta) { meta.n_layers = 3; }));
  CHECK(outcome.checks[0].verdict() == Verdict::kFail);
  CHECK_THAT(outcome.checks[0].detail, Contains("4 layers here, 3 in the reference"));
}

TEST_CASE("a failing stage says that the reference has another vocabulary", "[stages]") {
  const StagesOutcome outcome =
      stages_of(changed(ProbeSink::kGlobal, "embd", all,
                        [](DumpMeta& meta) { meta.tokenizer_hash = std::string(64, '0'); }));
  CHECK_THAT(outcome.checks[0].detail, Contains("the vocabularies differ"));
}

TEST_CASE("the greedy end of a dump is what its own logits choose", "[stages]") {
  constexpr std::size_t kVocab = 9;
  Recorder recorder;
  recorder.begin_step(std::vector<int>{1, 5, 7, 2}, 0);
  std::vector<float> logits(4 * kVocab);
  const auto choose = [&](std::size_t row, std::size_t id) { logits[row * kVocab + id] = 1; };
  choose(0, 4);  // not the 5 that follows
  choose(1, 7);
  choose(2, 2);
  choose(3, 3);
  logits[3 * kVocab + 6] = 1;  // as large: the lower id counts
  recorder.tap(ProbeSink::kGlobal, "logits", logits, kVocab, 0);
  const Dump dump = require_ok(std::move(recorder).finish(fake_meta()));
  const auto text = require_ok(greedy_text(dump));
  REQUIRE(text);
  CHECK(text->prompt == std::vector<TokenId>{1, 5});
  CHECK(text->tokens == std::vector<TokenId>{7, 2, 3});
}

}  // namespace llm::test
