// What is said of answers that this engine gives with int8 activations and a coarser KV cache.

#include <cmath>

#include "engine/sampler/sampler.h"
#include "tests/support/embedded_model.h"
#include "tests/support/test.h"
#include "validate/remote_server/judge.h"
#include "validate/remote_server/kv_filters.h"
#include "validate/remote_server/serving_hypothesis.h"

namespace llm::test {
namespace {

/// The greedy answer, as a server with such a cache reports it.
JudgeAnswer answer_of(Sequence& sequence, const JudgeQuestion& question) {
  std::vector<TokenId> next =
      require_ok(ServingHypothesis{}.prompt(sequence.model(), question, {}));
  sequence.truncate(0);
  JudgeAnswer answer;
  while (answer.tokens.size() < kAnswerTokens) {
    const auto row = require_ok(sequence.evaluate(next, LogitRows::kLast));
    const Logprobs logprobs = logprobs_of(row, 0, kAnswerTop);
    const auto reported = [&](const TokenLogprob& token) {
      return ReportedToken{sequence.tokenizer().piece_text(token.id, true), token.logprob};
    };
    AnsweredToken& token = answer.tokens.emplace_back();
    for (const TokenLogprob& one : logprobs.top) token.top.push_back(reported(one));
    token.chosen = token.top.front();
    next = {logprobs.top.front().id};
  }
  return answer;
}

/// Keeps 9 bits of each value's significand: more than bf16, fewer than f16.
void round_to_9_bits(std::span<float> heads, std::size_t /*head_dim*/) {
  for (float& value : heads) {
    int exponent = 0;
    const float fraction = std::frexp(value, &exponent);
    value = std::ldexp(std::nearbyint(std::ldexp(fraction, 9)), exponent - 9);
  }
}

/// The verdict on a server whose keys and values go through `filter`.
CheckResult verdict_on(KvFilter filter, const std::shared_ptr<const Model>& model = embedded(2)) {
  const std::vector<JudgeQuestion> questions = judge_questions(*model);
  const auto sequence = require_ok(open_sequence(model, {.kv = KvType::kF16}));
  sequence->executor().set_kv_filter(filter);
  std::vector<JudgeAnswer> answers;
  for (const JudgeQuestion& question : questions) answers.push_back(answer_of(*sequence, question));
  return require_ok(judge_answers(model, questions, answers)).checks.front();
}

}  // namespace

TEST_CASE("a coarse KV cache is named by its type", "[judge]") {
  // The rotated ones are these here: heads of 32 dims are not rotated.
  const KvFilterRow& row = kKvFilters[GENERATE(0, 2)];
  const CheckResult verdict = verdict_on(row.filter);
  CAPTURE(row.name, verdict.detail);
  CHECK(verdict.name == fmt::format("keys and values quantized: {}", row.name));
}

TEST_CASE("a KV cache of 8 bits is in the noise", "[judge]") {
  const CheckResult verdict = verdict_on(kKvFilters[4].filter);
  CAPTURE(verdict.detail);
  CHECK(verdict.name == "log-probabilities differ only by rounding");
}

TEST_CASE("rounding coarser than f16 is noise where weights are not quantized", "[judge]") {
  const auto model = embedded(2, "fable-3m-f16.gguf");
  const CheckResult verdict = verdict_on(round_to_9_bits, model);
  CAPTURE(verdict.detail);
  CHECK(verdict.name == "log-probabilities differ only by rounding");
  const CheckResult coarse = verdict_on(kKvFilters[4].filter, model);
  CAPTURE(coarse.detail);
  CHECK(!coarse.passed);
}

}  // namespace llm::test
