// Steps of a scheduler on the real executor: a text is the same, to the last bit of its logits,
// however many others there are and however often it lost its pages.

#include "engine/serve/step_runner.h"

#include "base/sha256.h"
#include "tests/support/embedded_model.h"
#include "tests/support/test.h"

namespace llm::test {
namespace {

using Ids = std::vector<TokenId>;

struct Text {
  Ids tokens;
  Sha256 hash;

  void take(std::span<const float> logits) {
    hash.update(std::as_bytes(logits));
    tokens.push_back(static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin()));
  }
};

std::string hash_alone(const std::shared_ptr<const Model>& model, const Ids& prompt,
                       std::size_t n_new) {
  auto sequence = require_ok(open_sequence(model, {.context = 512}));
  Text text{prompt, {}};
  for (std::size_t i = 0; i < n_new; ++i) {
    const auto next = std::span(text.tokens).subspan(sequence->position());
    const auto logits = require_ok(sequence->evaluate(next, LogitRows::kLast));
    text.take(logits);
  }
  return text.hash.hex();
}

/// All of `prompts` at once. @return hashes over logits, in order
std::vector<std::string> hashes_together(StepRunner& runner, const SchedulerOptions& options,
                                         const std::vector<Ids>& prompts, std::size_t n_new) {
  auto scheduler = Scheduler::create(options);
  REQUIRE(scheduler.ok());
  std::vector<Text> texts;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    texts.push_back({prompts[i], {}});
    REQUIRE(scheduler->submit(i, prompts[i].size(), n_new) == Admission::kAccepted);
  }
  const auto next = [&] {
    return scheduler->next([&](RequestId id, std::size_t n_stored) {
      const std::span<const TokenId> tokens = texts[id].tokens;
      return runner.adopt(id, n_stored, tokens.first(tokens.size() - 1));
    });
  };
  for (Step step = next(); !step.parts.empty(); step = next()) {
    const Status status = runner.run(
        step, [&](RequestId id) { return std::span<const TokenId>(texts[id].tokens); },
        [&](const StepPart& part, std::span<const float> logits) -> Status {
          texts[part.id].take(logits);
          return Ok{};
        });
    INFO((status.ok() ? "" : status.error().to_string()));
    REQUIRE(status.ok());
    // What the scheduler counts is what the pool gives, or will give to the prompts under way.
    REQUIRE(runner.executor().pool().pages_in_use() <= scheduler->pages_in_use());
    for (const RequestId id : scheduler->complete()) runner.close(id);
  }
  REQUIRE((options.kv_pages > 20 || scheduler->preemptions() > effort<std::uint64_t>(3, 0)));
  std::vector<std::string> hashes;
  for (Text& text : texts) hashes.push_back(text.hash.hex());
  return hashes;
}

}  // namespace

TEST_CASE("texts made together, and preempted, are those made alone", "[serve]") {
  const auto model = embedded();
  std::mt19937 random(12);
  std::vector<Ids> prompts(effort<std::size_t>(16, 5));
  std::vector<std::string> expected;
  // Short prompts that grow over a page, so that pages run out while all decode.
  const std::size_t n_new = 30;
  for (Ids& prompt : prompts) {
    prompt.resize(random() % 3 == 0 ? 1 + random() % 400 : 230 + random() % 25);
    for (TokenId& id : prompt) id = static_cast<TokenId>(random() % model->config().n_vocab);
    expected.push_back(hash_alone(model, prompt, n_new));
  }
  for (const std::size_t kv_pages : {40, 3}) {
    for (const std::size_t step_tokens : {32, 512}) {
      CAPTURE(kv_pages, step_tokens);
      const SchedulerOptions options{.step_tokens = step_tokens,
                                     .parallel = 8,
                                     .queue = 100,
                                     .context = 512,
                                     .kv_pages = kv_pages};
      auto executor = require_ok(Executor::create(
          model, {.context = 512, .batch = step_tokens, .kv_pages = options.kv_pages}));
      StepRunner runner(executor);
      REQUIRE(hashes_together(runner, options, prompts, n_new) == expected);
      REQUIRE(executor->pool().pages_in_use() == 0);
    }
  }
}

TEST_CASE("shared prefixes change no bit of a scheduled text", "[serve]") {
  const auto model = embedded();
  // Equal but for the last token, and equal to the last, which ends a page.
  std::vector<Ids> prompts(4, Ids(300, 7));
  for (std::size_t i = 0; i < prompts.size(); ++i) prompts[i].back() = static_cast<TokenId>(20 + i);
  prompts.insert(prompts.end(), 3, Ids(256, 7));
  std::vector<std::string> expected;
  for (const Ids& prompt : prompts) expected.push_back(hash_alone(model, prompt, 5));
  for (const std::size_t step_tokens : {600, 64, 8}) {
    CAPTURE(step_tokens);
    auto executor =
        require_ok(Executor::create(model, {.context = 600, .batch = step_tokens, .kv_pages = 40}));
    StepRunner runner(executor, {.share_prefix = true});
    const SchedulerOptions options{
        .step_tokens = step_tokens, .parallel = 8, .queue = 100, .context = 512, .kv_pages = 40};
    REQUIRE(hashes_together(runner, options, prompts, 5) == expected);
    REQUIRE(executor->pool().pages_shared() >= (step_tokens < 256 ? 3 : 2));
  }
}

TEST_CASE("an error of the executor or of who takes the logits ends the step", "[serve]") {
  const auto model = embedded();
  auto executor = require_ok(Executor::create(model, {.context = 16}));
  StepRunner runner(executor);
  const Ids bad(3, 1 << 30);
  const Ids good(3, 1);
  const Step step{.preempted = {}, .parts = {{4, 0, 3, true}}, .n_tokens = 3};
  const auto take = [](const StepPart&, std::span<const float>) -> Status {
    return Error{.code = ErrorCode::kNonFinite, .field = "mine", .message = ""};
  };
  const Status refused = runner.run(
      step, [&](RequestId) { return std::span(bad); }, take);
  REQUIRE_FALSE(refused.ok());
  REQUIRE(refused.error().field == "token id");
  const Status stopped = runner.run(
      step, [&](RequestId) { return std::span(good); }, take);
  REQUIRE_FALSE(stopped.ok());
  REQUIRE(stopped.error().field == "mine");
}

}  // namespace llm::test
