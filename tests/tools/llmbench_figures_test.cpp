// What llmbench makes of measured times, with times that are given.

#include "bench/peaks.h"
#include "tests/tools/llmrun_process.h"
#include "tools/llmbench/measurement.h"
#include "tools/llmbench/report.h"
#include "tools/llmbench/synthetic_file.h"

namespace llm::test {
namespace {

std::vector<std::string> names(const std::vector<BenchTest>& plan) {
  std::vector<std::string> result;
  for (const BenchTest& test : plan) result.push_back(test.name());
  return result;
}

BenchModel a_model() {
  return {.name = "a \"model\", named | so",
          .type = "Q4_K_M",
          .file_bytes = 4'000'000,
          .n_weights = 7'000'000,
          .weight_bytes = 3'000'000,
          .layer_macs = 5'000'000,
          .output_macs = 1'000'000};
}

Measurement measured(BenchKind kind, std::size_t n_tokens, std::vector<double> seconds) {
  Measurement m{.test = {.kind = kind, .n_tokens = n_tokens, .batch = 100}, .threads = 3};
  m.seconds = std::move(seconds);
  return m;
}

}  // namespace

TEST_CASE("a plan holds every combination once", "[llmbench]") {
  BenchLists lists;
  REQUIRE(names(make_plan(lists)) == std::vector<std::string>{"load", "ttft", "pp512", "tg128"});
  lists.prompt = {512, 2048};
  lists.generate = {0, 64, 64};
  lists.depth = {1536, 0};
  lists.no_cache = true;
  lists.load = false;
  const auto plan = make_plan(lists);
  REQUIRE(names(plan) == std::vector<std::string>{"pp512", "pp2048", "tg64", "tg64@nocache",
                                                  "pp512@d1536", "pp2048@d1536", "tg64@d1536",
                                                  "tg64@d1536@nocache"});
  REQUIRE(context_needed(plan) == 2048 + 1536);
  lists.threads = {1, 2};
  lists.batch = {32, 512};
  REQUIRE(make_plan(lists).size() == 4 * plan.size());
  lists.prompt = {0};
  lists.generate = {};
  REQUIRE(make_plan(lists).empty());
}

TEST_CASE("figures are rates of tokens and times of loads", "[llmbench]") {
  const Measurement prompt = measured(BenchKind::kPrompt, 250, {2.0, 0.5, 1.0, 4.0});
  REQUIRE(figures(prompt) == std::vector<double>{125, 500, 250, 62.5});
  const Spread spread = spread_of(figures(prompt));
  REQUIRE(spread.median == 187.5);
  REQUIRE(spread.min == 62.5);
  REQUIRE(spread.max == 500);
  REQUIRE(figures(measured(BenchKind::kLoad, 0, {0.25})) == std::vector<double>{250});
}

TEST_CASE("bytes and products of a test are counted as they are computed", "[llmbench]") {
  const BenchModel model = a_model();
  const Measurement prompt = measured(BenchKind::kPrompt, 250, {2.0, 0.5, 0.5});
  REQUIRE(weight_passes(prompt.test) == 3);
  REQUIRE(*gb_per_s(model, prompt) == Approx(3 * 0.003 / 0.5));
  REQUIRE(*gmac_per_s(model, prompt) == Approx((250 * 0.005 + 0.001) / 0.5));

  const Measurement generate = measured(BenchKind::kGenerate, 10, {0.5});
  REQUIRE(*gb_per_s(model, generate) == Approx(10 * 0.003 / 0.5));
  REQUIRE(*gmac_per_s(model, generate) == Approx(10 * 0.006 / 0.5));

  Measurement several = measured(BenchKind::kGenerate, 10, {0.5});
  several.test.step = 4;
  REQUIRE(several.test.name() == "tg10@x4");
  REQUIRE(weight_passes(several.test) == 3);
  several.test.batch = 3;
  REQUIRE(weight_passes(several.test) == 2 * 2 + 1);
  REQUIRE(gmac_per_s(a_model(), several) == gmac_per_s(a_model(), generate));

  Measurement without_cache = measured(BenchKind::kGenerate, 2, {1.0});
  without_cache.test.depth = 99;
  without_cache.test.cache = false;
  REQUIRE(weight_passes(without_cache.test) == 1 + 2);  // 100 positions, then 101
  REQUIRE(*gmac_per_s(model, without_cache) == Approx(201 * 0.005 + 2 * 0.001));

  const Measurement load = measured(BenchKind::kLoad, 0, {2.0});
  REQUIRE(*gb_per_s(model, load) == Approx(0.002));
  REQUIRE(!gmac_per_s(model, load));
  REQUIRE(!gb_per_s(model, measured(BenchKind::kFirstToken, 8, {2.0})));
}

TEST_CASE("a comparison says how much faster and whether ranges meet", "[llmbench]") {
  const test::ScratchDirectory directory;
  BenchReport old{.model = a_model()};
  old.measurements = {measured(BenchKind::kPrompt, 100, {1.0, 2.0, 4.0}),
                      measured(BenchKind::kLoad, 0, {0.2})};
  directory.write("old.json", report_json(old));
  const auto baseline = require_ok(Baseline::read(directory / "old.json"));

  const auto now = [&](const Measurement& m) { return baseline.compare(old.model, m); };
  const auto prompt = now(measured(BenchKind::kPrompt, 100, {0.5, 0.8}));
  REQUIRE(prompt->old.median == 50);
  REQUIRE(prompt->speedup == Approx(3.25));
  REQUIRE(!prompt->overlap);
  REQUIRE(now(measured(BenchKind::kPrompt, 100, {0.5, 1.0}))->overlap);
  REQUIRE(now(measured(BenchKind::kLoad, 0, {0.4}))->speedup == Approx(0.5));

  REQUIRE(!now(measured(BenchKind::kPrompt, 101, {1.0})));
  Measurement other_kv = measured(BenchKind::kPrompt, 100, {1.0});
  other_kv.kv = KvType::kF32;
  REQUIRE(!now(other_kv));
  BenchModel other_type = a_model();
  other_type.type = "Q4_0";
  REQUIRE(!baseline.compare(other_type, old.measurements[0]));
}

TEST_CASE("a malformed earlier run is an error that names the row", "[llmbench]") {
  const test::ScratchDirectory directory;
  const auto [content, words] = GENERATE(table<const char*, const char*>({
      {"", "found no JSON array"},
      {"{}", "found no JSON array"},
      {"[1]", "[0]: found 1, need an object"},
      {R"([{"read_gb_per_s": 1}, {"test": "pp1"}])", "[1].model: found none"},
      {R"([{"test":"pp1","model":"m","type":"t","threads":1,"isa":"i","kv":"f16",
           "tokens_per_s":{"median":0,"min":1,"max":2}}])",
       "[0].tokens_per_s.median: found 0, need a number above 0"},
  }));
  directory.write("old.json", std::string(content));
  const Error baseline = must_fail(Baseline::read(directory / "old.json"), ErrorCode::kMalformed);
  REQUIRE(test::contains(baseline.to_string(), words));
}

TEST_CASE("formats carry text of any kind", "[llmbench]") {
  BenchReport report{.model = a_model()};
  report.measurements = {measured(BenchKind::kPrompt, 100, {1.0}),
                         measured(BenchKind::kLoad, 0, {1.0})};
  REQUIRE(test::parse_json(report_json(report))[0]["model"] == report.model.name);
  const std::string table = report_markdown(report);
  REQUIRE(test::contains(table, "| a \"model\", named ? so |"));
  // Every line of a table is as wide as the first.
  for (std::size_t begin = 0; begin < table.size();) {
    const std::size_t end = table.find('\n', begin);
    REQUIRE(end - begin == table.find('\n'));
    begin = end + 1;
  }
}

TEST_CASE("peaks are positive on every instruction set of this CPU", "[llmbench]") {
  for (const Isa isa : all_isas()) {
    if (!isa_supported(isa)) continue;
    CAPTURE(isa_name(isa));
    PeakMeter meter(isa, 2);
    REQUIRE(meter.measure().ok());  // checks every sum
    REQUIRE(meter.best().read_gb_per_s > 0);
    REQUIRE(meter.best().read_gb_per_s_one_thread > 0);
    REQUIRE(meter.best().dot_gmac_per_s > 0);
    REQUIRE(meter.best().dot_gmac_per_s_one_thread > 0);
  }
}

TEST_CASE("a nameless file can be opened and leaves no name", "[llmbench]") {
  const test::ScratchDirectory directory;
  setenv("TMPDIR", (directory / "").c_str(), 1);
  {
    auto file = require_ok(NamelessFile::create());
    REQUIRE(file.write(std::as_bytes(std::span("content", 7))).ok());
    REQUIRE(test::read_file(file.path()) == "content");
    REQUIRE(std::filesystem::is_empty(directory / ""));
  }
  setenv("TMPDIR", (directory / "absent").c_str(), 1);
  const auto refused = NamelessFile::create();
  unsetenv("TMPDIR");
  REQUIRE(!refused.ok());
  REQUIRE(refused.error().code == ErrorCode::kIo);
}

}  // namespace llm::test
