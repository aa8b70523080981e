// The verdicts of --verify and its tables, from outcomes made by hand.

#include "tests/support/test.h"
#include "validate/outputs/verify/verdict.h"

namespace llm {

namespace {

constexpr double kNoise = 0.5;

TopStep choices(std::vector<TokenId> ids) { return {std::move(ids), {9, 8.5F, 7}}; }

LogitNoise error_of(float size) {
  LogitNoise error;
  error.add(std::vector<float>{1 + size}, std::vector<float>{1});
  return error;
}

/// A prompt of one step with that choice of the engine: 10 is the reference's, 11 half a logit
/// after it, 12 two, 99 outside its top.
PromptOutcome prompt(const std::string& id, TokenId choice) {
  const std::vector<TopStep> reference = {choices({10, 11, 12})};
  const std::vector<TopStep> engine = {choice == 10 ? choices({10, 11, 12})
                                                    : choices({choice, 10, 50})};
  return {id, compare_lockstep(reference, engine), compare_forced(reference, engine)};
}

VerifyOutcome outcome(VerifyGate gate, std::vector<PromptOutcome> prompts) {
  VerifyOutcome o;
  o.gate = gate;
  o.top_k = 3;
  o.texts = prompts.size();
  o.prompts = std::move(prompts);
  o.noise = error_of(kNoise);
  o.f32_error = error_of(0);
  o.int8_error = error_of(kNoise);
  o.f32_limit = 1e-9;
  o.noise_limit = 1;
  return o;
}

/// The names of the checks that failed.
std::vector<std::string> failed(const VerifyOutcome& o) {
  std::vector<std::string> names;
  for (const auto& check : verify_checks(o))
    if (!check.passed) names.push_back(check.name);
  return names;
}

const std::vector<std::string> kForced = {"verify: given the reference's tokens, its choices"};

}  // namespace

TEST_CASE("near ties pass, misses fail, by the reference of the same file", "[verify]") {
  CHECK(failed(outcome(VerifyGate::kStrict, {prompt("a", 10), prompt("b", 11)})).empty());
  // Within both tops, but two logits apart with a noise of half a logit.
  CHECK(failed(outcome(VerifyGate::kStrict, {prompt("a", 10), prompt("b", 12)})) == kForced);
  auto loud = outcome(VerifyGate::kStrict, {prompt("b", 12)});
  loud.noise = error_of(1);
  CHECK(failed(loud).empty());
  // Noise excuses a near tie, never a choice that the other side does not know.
  loud.prompts = {prompt("c", 99)};
  CHECK(failed(loud) == std::vector<std::string>{"verify: greedy, first difference in both top 3"});
}

TEST_CASE("errors are held to their limits", "[verify]") {
  auto o = outcome(VerifyGate::kStrict, {prompt("a", 10)});
  o.f32_error = error_of(1e-3F);
  CHECK(failed(o) == std::vector<std::string>{"verify: f32 logits equal the reference's"});
  // Broken int8 products cannot hide behind the noise they make.
  o = outcome(VerifyGate::kStrict, {prompt("a", 12)});
  o.noise = error_of(3);
  CHECK(failed(o) ==
        std::vector<std::string>{"verify: the error of int8 activations is within its limit"});
  o = outcome(VerifyGate::kStrict, {prompt("a", 10)});
  o.noise = error_of(std::numeric_limits<float>::quiet_NaN());
  CHECK(failed(o) ==
        std::vector<std::string>{"verify: the error of int8 activations is within its limit"});
  o = outcome(VerifyGate::kStrict, {prompt("a", 10)});
  o.text_problems = {"a differs at token 3"};
  CHECK(failed(o) == std::vector<std::string>{"verify: prompts give the reference's ids"});
  CHECK(verify_checks(o)[0].detail == "a differs at token 3");
}

TEST_CASE("another quantization may leave the top in 1 % of the steps", "[verify]") {
  std::vector<PromptOutcome> prompts(99, prompt("a", 12));  // misses, but all inside
  auto o = outcome(VerifyGate::kQuantized, prompts);
  o.f32_error = error_of(1);  // other weights, so other logits
  CHECK(failed(o).empty());
  o.prompts.push_back(prompt("x", 99));
  CHECK(o.outside() == 1);
  CHECK(o.outside_allowed() == 1);
  CHECK(failed(o).empty());
  o.prompts.back() = prompt("y", 10);
  o.prompts[0] = prompt("x", 99);
  o.prompts[1] = prompt("z", 99);
  REQUIRE(failed(o) ==
          std::vector<std::string>{"verify: given the reference's tokens, choices in both top 3"});
  CHECK_THAT(verify_checks(o).back().detail,
             Contains("1 of 100 equal, 2 outside, 1 allowed") && Contains(": x, z"));
  o.prompts.push_back(prompt("w", 10));  // 101 steps: two
  CHECK(failed(o).empty());
}

TEST_CASE("of few steps none may leave the top: one step proves nothing", "[verify]") {
  const auto verdict = [](std::size_t n_steps) {
    std::vector<PromptOutcome> prompts(n_steps - 1, prompt("a", 10));
    prompts.push_back(prompt("x", 99));
    return failed(outcome(VerifyGate::kQuantized, prompts)).empty();
  };
  CHECK_FALSE(verdict(1));
  CHECK_FALSE(verdict(19));
  CHECK(verdict(20));
}

TEST_CASE("the table shows both choices with ranks, gap and verdict", "[verify]") {
  const auto spelling = [](TokenId id) { return "t" + std::to_string(id); };
  const auto cells = [&](VerifyGate gate, TokenId choice) {
    const auto o = outcome(gate, {prompt("p", choice)});
    const auto table = verify_table(o, "title", spelling);
    std::string out;
    for (const auto& cell : table.rows.at(0)) out += cell.text + " ";
    REQUIRE(table.rows[0].size() == table.columns.size());
    return out;
  };
  CHECK(cells(VerifyGate::kStrict, 10) == "p 1 - - - - - - 0 0 PASS ");
  CHECK(cells(VerifyGate::kStrict, 11) == "p 0 1 t10 2 t11 2 0.5000 1 0 PASS ");
  CHECK(cells(VerifyGate::kStrict, 12) == "p 0 1 t10 2 t12 3 2.0000 0 1 FAIL ");
  CHECK(cells(VerifyGate::kStrict, 99) == "p 0 1 t10 2 t99 >3 >=2.0000 0 1 FAIL ");
  CHECK(cells(VerifyGate::kQuantized, 12) == "p 0 1 t10 2 t12 3 2.0000 1 0 PASS ");
  CHECK(cells(VerifyGate::kQuantized, 99) == "p 0 1 t10 2 t99 >3 >=2.0000 0 1 OUTSIDE ");
}

}  // namespace llm
