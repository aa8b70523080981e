// llmbench as scripts meet it: the real program, its shapes and its exit codes. Never its times:
// what is made of those is tested with times that are given.

#include "bench/peaks.h"
#include "tests/tools/llmrun_process.h"
#include "tools/llmbench/measurement.h"
#include "tools/llmbench/report.h"
#include "tools/llmbench/synthetic_file.h"

namespace llm::test {
namespace {

class Llmbench : public ToolFolder {
 public:
  Finished llmbench(const std::string& arguments) { return shell("llmbench " + arguments); }

  Json report(const std::string& arguments) {
    return test::parse_json(llmbench(arguments + " -o json").must_end(0).out);
  }
};

void require_spread(const Json& spread) {
  REQUIRE(spread.size() == 3);
  REQUIRE(spread["min"].get<double>() > 0);
  REQUIRE(spread["min"].get<double>() <= spread["median"].get<double>());
  REQUIRE(spread["median"].get<double>() <= spread["max"].get<double>());
}

/// The keys that docs/cli.md promises for every row.
void require_row(const Json& row) {
  for (const char* key : {"test", "model", "type", "isa", "kv"}) {
    CAPTURE(key);
    REQUIRE(row.at(key).is_string());
  }
  REQUIRE(row.at("threads").is_number_integer());
  REQUIRE(row.contains("ms") != row.contains("tokens_per_s"));
  require_spread(row.contains("ms") ? row["ms"] : row["tokens_per_s"]);
  REQUIRE(row.at("peak_rss_mib").get<double>() > 0);
  REQUIRE(row.at("schema_version") == 1);
  for (const char* key : {"gb_per_s", "read_bandwidth_share", "dot_peak_share"}) {
    REQUIRE(row.contains(key));
  }
}

std::vector<std::string> tests_of(const Json& rows) {
  std::vector<std::string> names;
  for (const Json& row : rows) names.push_back(row.value("test", "-"));
  return names;
}

const std::string kSmall = "tiny.gguf -q -r 3 -p 8,20 -n 4 -d 0,9 ";

}  // namespace

TEST_CASE_METHOD(Llmbench, "the JSON has the promised shape") {
  const Json rows = report(kSmall + "--no-peaks -t 2 --kv f32 --isa scalar");
  REQUIRE(tests_of(rows) == std::vector<std::string>{"load", "ttft", "pp8", "pp20", "tg4", "pp8@d9",
                                                     "pp20@d9", "tg4@d9"});
  for (const Json& row : rows) {
    CAPTURE(json_text(row));
    require_row(row);
    must_match(row, R"({"threads": 2, "isa": "scalar", "kv": "f32", "read_bandwidth_share": null,
        "dot_peak_share": null})"_j);
    REQUIRE(row["samples"].size() == 3);
    const bool is_latency = row["test"] == "load" || row["test"] == "ttft";
    REQUIRE(row.contains("ms") == is_latency);
    REQUIRE(row.contains("tbt_ms") == row["test"].get<std::string>().starts_with("tg"));
    REQUIRE(row["gb_per_s"].is_null() == (row["test"] == "ttft"));
  }
}

TEST_CASE_METHOD(Llmbench, "shares and peaks come from the same run") {
  const Json rows = report("tiny.gguf -q -r 2 -p 8 -n 4 -t 1,2 --peaks --no-load");
  REQUIRE(tests_of(rows) == std::vector<std::string>{"pp8", "tg4", "pp8", "tg4", "-", "-"});
  for (std::size_t i = 0; i < 4; ++i) {
    require_row(rows[i]);
    const Json& peaks = rows[4 + i / 2];
    REQUIRE(rows[i]["threads"] == peaks["threads"]);
    REQUIRE(rows[i]["gb_per_s"].get<double>() ==
            Approx(rows[i]["read_bandwidth_share"].get<double>() *
                   peaks["read_gb_per_s"].get<double>()));
    REQUIRE(rows[i]["dot_peak_share"].get<double>() > 0);
    REQUIRE(peaks["dot_gmac_per_s"].get<double>() > 0);
  }
  // The half GiB of the bandwidth measurement is none of the engine's.
  REQUIRE(rows[3]["peak_rss_mib"].get<double>() < 400);
}

TEST_CASE_METHOD(Llmbench, "peaks need no model") {
  const Json alone = report("--peaks -r 1 -t 1");
  REQUIRE(alone.size() == 1);
  REQUIRE(alone[0]["read_gb_per_s"].get<double>() > 0);
  REQUIRE(alone[0]["dot_gmac_per_s"].get<double>() > 0);
}

TEST_CASE_METHOD(Llmbench,
                 "generation without a cache, or of several tokens a pass, is a test of its own") {
  const std::string run = "tiny.gguf -q -r 1 -p 0 --no-peaks --no-load ";
  const Json cached = report(run + "-n 4 -d 3 --no-cache");
  must_match(
      cached,
      R"([{"test": "tg4@d3", "cache": true}, {"test": "tg4@d3@nocache", "cache": false}])"_j);
  const Json rows = report(run + "-n 10 --tokens-per-pass 1,4,8");
  must_match(
      rows,
      R"([{"test": "tg10"}, {"test": "tg10@x4", "tokens_per_pass": 4}, {"test": "tg10@x8"}])"_j);
  REQUIRE(!rows[1].contains("tbt_ms"));
  llmbench("tiny.gguf --tokens-per-pass 0")
      .must_end(2, {"--tokens-per-pass: found \"0\", need integers in 1..512"});
}

TEST_CASE_METHOD(Llmbench, "a table has a line per test") {
  const Finished table = llmbench(kSmall + "--no-peaks").must_end(0, {}, {"| pp20@d9 |"});
  REQUIRE(std::ranges::count(table.out, '\n') == 2 + 8 + 1 + 2 + 2);
}

TEST_CASE_METHOD(Llmbench, "a start is shown in parts, without and with a packed cache") {
  const std::string small = "tiny.gguf -q -r 2 -p 8 -n 0 --no-peaks --packed-cache cache ";
  const Json rows = report(small);
  REQUIRE(tests_of(rows) ==
          std::vector<std::string>{"load", "ttft", "load@packed", "ttft@packed", "pp8"});
  for (const Json& row : rows) {
    CAPTURE(json_text(row));
    REQUIRE(row.contains("start_ms") == row.contains("ms"));
    if (!row.contains("ms")) continue;
    const Json& parts = row["start_ms"];
    for (const char* part : {"open", "tokenizer", "weights"}) REQUIRE(parts[part] > 0.0);
    const bool to_token = row["test"].get<std::string>().starts_with("ttft");
    REQUIRE((parts["first_token"] > 0.0) == to_token);
    REQUIRE(parts["open"].get<double>() + parts["tokenizer"].get<double>() +
                parts["weights"].get<double>() + parts["first_token"].get<double>() <=
            row["ms"]["max"].get<double>() * 2);
  }
  REQUIRE(std::filesystem::exists(path("cache")));
  const Finished table = llmbench(small);
  REQUIRE(contains(table.out, "| start, ms   |"));
  REQUIRE(contains(table.out, "\n| ttft@packed |"));
  REQUIRE(
      tests_of(report("tiny.gguf -q -r 1 -p 8 -n 0 --no-peaks --no-load --packed-cache cache")) ==
      std::vector<std::string>{"pp8"});
}

TEST_CASE_METHOD(Llmbench, "packing belongs to a start and to no other test") {
  const Finished run = llmbench("tiny.gguf -p 8 -n 4 -r 2 -t 1 --no-peaks --profile")
                           .must_end(0, {}, {"ttft", "pp8, 1 threads: 2 passes", "\nffn_down "});
  REQUIRE_FALSE(contains(run.out, "\npack "));
}

TEST_CASE_METHOD(Llmbench, "a run compares itself with an earlier one") {
  const std::string arguments = "tiny.gguf -q -r 1 -p 8 -n 0 -t 1 --no-peaks --no-load ";
  write("old.json", json_text(report(arguments)));
  const Json rows = report(arguments + "--compare old.json");
  REQUIRE(rows[0]["compare"]["speedup"].get<double>() > 0);
  require_spread(rows[0]["compare"]["old"]);
  const Finished table = llmbench(arguments + "--compare old.json");
  REQUIRE(contains(table.out, "vs old"));
  llmbench("tiny.gguf -r 1 -p 9 -n 0 -t 1 --no-peaks --no-load --compare old.json")
      .must_end(0, {"no row for pp9"});
  llmbench("tiny.gguf --compare absent").must_end(4);
  llmbench("tiny.gguf --compare tiny.gguf").must_end(3);
}

TEST_CASE_METHOD(Llmbench, "a synthetic model needs no file and leaves none") {
  const Finished run = shell(
                           "mkdir tmp && TMPDIR=tmp llmbench --synthetic mqa --type Q4_0 -q -r 1 "
                           "-p 8 -n 2 --no-peaks -o json && ls -A tmp | wc -l >&2")
                           .must_end(0, {"0"});
  const Json rows = test::parse_json(run.out);
  REQUIRE(rows.size() == 4);
  for (const Json& row : rows) {
    require_row(row);
    REQUIRE(row["type"] == "Q4_0");
  }
}

TEST_CASE_METHOD(Llmbench, "an interrupt keeps what was measured") {
  // Threads are there once the model is being loaded, and interrupts are then graceful.
  const Finished run =
      shell(
          "llmbench tiny.gguf -q -t 2 -r 10000 -p 60 -n 0 --no-peaks --no-load -o json & pid=$!\n"
          "until [ $(ls /proc/$pid/task | wc -l) -gt 1 ]; do sleep 0.01; done\n"
          "kill -TERM $pid; wait $pid")
          .must_end(143);
  REQUIRE(test::parse_json(run.out).is_array());
}

TEST_CASE_METHOD(Llmbench, "wrong usage of llmbench exits with 2") {
  for (const auto& [arguments, words] : std::vector<std::tuple<const char*, const char*>>{
           {"", "MODEL: found nothing, need a GGUF file, --synthetic or --peaks"},
           {"tiny.gguf -p 1,x", "-p: found \"1,x\", need integers in 0..1048576"},
           {"tiny.gguf -p 1,", "-p: found \"1,\", need integers"},
           {"tiny.gguf -n -1", "-n: found \"-1\", need integers"},
           {"tiny.gguf -b 0", "-b: found \"0\", need integers in 1..65536"},
           {"tiny.gguf -t 257", "-t: found \"257\", need integers in 0..256"},
           {"tiny.gguf -r 0", "-r: found \"0\", need an integer in 1..10000"},
           {"tiny.gguf -o xml", "-o: found \"xml\", need md or json"},
           {"tiny.gguf -p 0 -n 0 --no-load", "-p: found no test at all"},
           {"tiny.gguf --peaks --no-peaks", "--peaks: found with --no-peaks"},
           {"tiny.gguf -m tiny.gguf", "found 1 arguments without a dash, need at most 0"},
           {"tiny.gguf --type Q4_0", "--type: found without --synthetic"},
           {"--synthetic gpt", "--synthetic: found \"gpt\", need one of tinyllama"},
           {"--synthetic mqa --type Q9", "--type: found \"Q9\", need a type of llmquant"},
       }) {
    llmbench(arguments).must_refuse(2, {"llmbench: error: ", words});
  }
}

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
