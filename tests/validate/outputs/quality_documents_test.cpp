#include "engine/sampler/sampler.h"
#include "tests/support/test.h"
#include "validate/outputs/quality/baseline.h"
#include "validate/outputs/quality/document_gate.h"

namespace llm {
namespace {

using Scores = std::vector<DocumentScore>;

constexpr double kLimit = 0.002;

Scores scores_of_lengths(std::size_t n) {
  Scores scores;
  for (std::size_t i = 0; i < n; ++i)
    scores.push_back({.nll = 80 + static_cast<double>(i % 13), .tokens = 250 + i * 7 % 100});
  return scores;
}

/// Losses of `mean` a token, of which documents differ by `spread`: few have large ones.
Scores worse(Scores scores, double mean, double spread, std::uint64_t seed) {
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const double u = uniform_draw(seed, 1, i);
    const double skewed = -std::log(1 - u) - 1;  // exponential, mean 0, deviation 1
    scores[i].nll += (mean + spread * skewed) * static_cast<double>(scores[i].tokens);
  }
  return scores;
}

/// What score_documents and the gate come to.
DocumentGate decide(const Scores& now, const Scores& baseline) {
  DocumentGate gate;
  for (const std::size_t look : gate_looks(baseline.size())) {
    gate = document_gate(std::span(now).first(look), baseline, kLimit);
    if (gate.verdict != Verdict::kUndecided) break;
  }
  return gate;
}

TEST_CASE("the gate looks at ever more documents and at last at all", "[quality][documents]") {
  CHECK(gate_looks(100) == std::vector<std::size_t>{32, 64, 100});
  CHECK(gate_looks(64) == std::vector<std::size_t>{32, 64});
  CHECK(gate_looks(3) == std::vector<std::size_t>{3});
}

TEST_CASE("a loss fails, none passes, and what lies between goes on", "[quality][documents]") {
  const Scores base = scores_of_lengths(100);
  const DocumentGate same = decide(base, base);
  CHECK(same.verdict == Verdict::kPass);
  CHECK(same.mean == 0);
  CHECK(same.documents == 32);
  CHECK(decide(worse(base, -0.01, 0.001, 1), base).verdict == Verdict::kPass);  // better
  const DocumentGate loss = decide(worse(base, std::log(1.04), 0.001, 1), base);
  CHECK(loss.verdict == Verdict::kFail);
  CHECK(loss.documents == 32);
  CHECK(std::expm1(loss.mean) == Approx(0.04).margin(0.002));
  CHECK((loss.lower < loss.mean && loss.mean < loss.upper));
  // The same loss among large differences takes more text, or more than there is.
  CHECK(decide(worse(base, std::log(1.04), 0.12, 1), base).documents > 32);
  const DocumentGate open = decide(worse(base, kLimit, 0.02, 1), base);
  CHECK(open.verdict == Verdict::kUndecided);
  CHECK(open.documents == 100);
}

TEST_CASE("the interval is Student's for this number of looks", "[quality][documents]") {
  // Three looks: 2.5 % / 3 at each end.
  const Scores base(100, {.nll = 10, .tokens = 100});
  const auto [documents, t] = GENERATE(table<std::size_t, double>({{100, 2.4353}, {32, 2.5309}}));
  Scores now(base.begin(), base.begin() + static_cast<std::ptrdiff_t>(documents));
  for (std::size_t i = 0; i < now.size(); ++i) now[i].nll += i % 2 == 0 ? 1 : -1;
  const DocumentGate gate = document_gate(now, base, kLimit);
  const auto n = static_cast<double>(documents);
  const double standard_error = 0.01 * std::sqrt(n / (n - 1)) / std::sqrt(n);
  CHECK(gate.upper - gate.lower == Approx(2 * t * standard_error).epsilon(0.005));
}

TEST_CASE("looking again and again does not make wrong answers frequent", "[quality][documents]") {
  // Exactly at the limit both answers are wrong. 2.5 % each; somewhat more for draws as skewed as
  // these, which no text gives (their skewness is 2).
  const Scores base = scores_of_lengths(100);
  std::array<int, 3> count = {};
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const DocumentGate gate = decide(worse(base, kLimit, 0.01, seed), base);
    ++count.at(static_cast<std::size_t>(gate.verdict));
  }
  CAPTURE(count[0], count[1], count[2]);
  CHECK(count[static_cast<std::size_t>(Verdict::kFail)] <= 25);
  CHECK(count[static_cast<std::size_t>(Verdict::kPass)] <= 45);
}

TEST_CASE("what cannot be compared fails", "[quality][documents]") {
  const Scores base = scores_of_lengths(20);
  Scores now = base;
  now[3].nll = std::nan("");
  CHECK(decide(now, base).verdict == Verdict::kFail);
  now = base;
  ++now[3].tokens;
  CHECK(decide(now, base).verdict == Verdict::kFail);
  now = {base[0]};
  now[0].nll += 1e-9;  // a single document tells nothing of the next
  CHECK(document_gate(now, std::span(base).first(1), kLimit).verdict == Verdict::kUndecided);
}

TEST_CASE("a baseline of documents comes back from its JSON", "[quality][documents]") {
  DocumentBaseline baseline{.origin = {}, .documents = scores_of_lengths(3)};
  baseline.origin.model_sha256 = "ab";
  baseline.documents[0].nll = 1.0 / 3;
  const std::string json = document_baseline_json(baseline);
  const auto back = test::require_ok(parse_document_baseline(json));
  CHECK(back.documents == baseline.documents);
  CHECK(back.origin.model_sha256 == "ab");
  const auto [key, from, to] = GENERATE(
      table<std::string, std::string, std::string>({{"format", "documents/1", "documents/0"},
                                                    {"documents", "[[", "[1,["},
                                                    {"documents", ",250]", ",-250]"},
                                                    {"documents", ",250]", "]"},
                                                    {"seed", "\"seed\": 1", "\"seed\": -1"},
                                                    {"model_sha256", "\"ab\"", "3"}}));
  CAPTURE(json, from);
  std::string broken = json;
  broken.replace(broken.find(from), from.size(), to);
  const Error refused = test::must_fail(parse_document_baseline(broken), ErrorCode::kMalformed);
  CHECK(refused.field == key);
}

}  // namespace
}  // namespace llm
