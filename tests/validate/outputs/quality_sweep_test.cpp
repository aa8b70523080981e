#include "tests/support/embedded_model.h"
#include "tests/validate/check_results.h"
#include "validate/outputs/quality/baseline.h"
#include "validate/outputs/quality/sweep.h"

namespace llm::test {
namespace {

QualityResult measure(std::string_view name, const QualityConfig& config) {
  static const auto model = embedded();
  for (const Implementation& implementation : quality_implementations()) {
    if (implementation.name != name) continue;
    return require_ok(measure_quality(model, implementation,
                                      read_file(LLM_SOURCE_DIR "/models/heldout.txt"), config));
  }
  FAIL("no such implementation");
  return {};
}

bool all_passed(const std::vector<CheckResult>& checks) {
  return std::ranges::all_of(checks, &CheckResult::passed);
}

TEST_CASE("all ways to sample give the same text, and so do the greedy ones", "[quality]") {
  const QualityConfig config{.prompts = 3, .new_tokens = 12, .runs = 2, .openings = 3};
  std::vector<QualityResult> results;
  for (const Implementation& implementation : quality_implementations())
    results.push_back(measure(implementation.name, config));
  const auto checks = check_equality(results);
  CHECK(checks.size() == 7 + 3 + 6);
  check_passed(checks);
  CHECK(results[0].tokens != results[3].tokens);
  CHECK(results[0].tokens != results[5].tokens);
  CHECK(results[5].tokens != results[6].tokens);

  // One token, or the last bit of one likelihood, is seen and told.
  auto changed = results;
  changed[2].tokens[1][5] ^= 1;
  CHECK(
      named(check_equality(changed), "feed-one-sampling: tokens equal no-cache-sampling").detail ==
      "prompt 1 differs");
  changed = results;
  changed[4].nll[7] = std::nextafter(changed[4].nll[7], 100);
  CHECK(
      named(check_equality(changed), "greedy-cached: likelihoods equal no-cache-sampling").detail ==
      "token 7 differs");
}

TEST_CASE("greedy text is flagged by the baseline of sampled text", "[quality]") {
  const QualityConfig config{.runs = 1};
  const auto sampled = measure("cached-sampling", config);
  const auto greedy = measure("greedy-cached", config);
  QualityBaseline baseline = make_baseline(sampled, config);
  baseline.origin.model_sha256 = "this";
  CHECK(all_passed(check_against(sampled, "this", baseline)));
  const auto checks = check_against(greedy, "this", baseline);
  CAPTURE(greedy.repetition, sampled.repetition, greedy.distinct2, sampled.distinct2);
  CHECK_FALSE(all_passed(checks));
}

TEST_CASE("each gate has its bound", "[quality]") {
  QualityResult result{.name = "x", .nll = {}, .tokens = {{1, 2}}};
  result.perplexity = 3, result.repetition = 0.2, result.consistency = 1;
  result.distinct2 = 0.8, result.distinct3 = 0.9;
  QualityBaseline baseline = make_baseline(result, {});
  baseline.origin.model_sha256 = "this";
  REQUIRE(all_passed(check_against(result, "this", baseline)));
  const auto fails = [&](auto change, const std::string& name) {
    QualityResult worse = result;
    change(worse);
    const auto checks = check_against(worse, "this", baseline);
    CAPTURE(name);
    CHECK(std::ranges::count(checks, false, &CheckResult::passed) == 1);
    CHECK_FALSE(named(checks, "x: " + name).passed);
  };
  fails([](auto& r) { r.perplexity = 3.16; }, "perplexity");
  fails([](auto& r) { r.perplexity = 2.84; }, "perplexity");
  fails([](auto& r) { r.perplexity = std::nan(""); }, "perplexity");
  fails([](auto& r) { r.repetition = 0.221; }, "repetition");
  fails([](auto& r) { r.distinct2 = 0.71; }, "distinct-2");
  fails([](auto& r) { r.distinct3 = 0.80; }, "distinct-3");
  fails([](auto& r) { r.consistency = 2.0 / 3; }, "consistency");
  fails([](auto& r) { r.tokens[0][1] = 3; }, "the baseline's tokens");
  // Another model may give other tokens.
  QualityResult other = result;
  other.tokens[0][1] = 3;
  CHECK(all_passed(check_against(other, "that", baseline)));
}

TEST_CASE("a baseline comes back from its JSON; a broken one names the key", "[quality]") {
  QualityResult result{.name = "x", .nll = {}, .tokens = {{1, 2}}};
  result.repetition = 0.125;
  QualityBaseline baseline = make_baseline(result, {});
  baseline.origin.model_sha256 = "ab";
  const std::string json = baseline_json(baseline);
  const auto back = require_ok(parse_baseline(json));
  CHECK(back.implementation == "x");
  CHECK(back.origin.model_sha256 == "ab");
  CHECK(back.tokens_sha256 == tokens_hash(result));
  CHECK(back.repetition == 0.125);
  const auto [key, from, to] = GENERATE(
      table<std::string, std::string, std::string>({{"format", "quality/2", "quality/1"},
                                                    {"perplexity", "\"perplexity\"", "\"p\""},
                                                    {"model_sha256", "\"ab\"", "1"},
                                                    {"config.seed", "\"seed\": 1", "\"seed\": -1"},
                                                    {"JSON", "{", "["}}));
  std::string broken = json;
  broken.replace(broken.find(from), from.size(), to);
  const Error refused = must_fail(parse_baseline(broken), ErrorCode::kMalformed);
  CHECK(refused.field == key);
}

}  // namespace
}  // namespace llm::test
