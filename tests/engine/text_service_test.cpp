// Texts from a TextService: each is the one that is generated alone, with its logits and log
// probabilities, whatever runs beside it.

#include "engine/serve/text_service.h"

#include <future>

#include "base/sha256.h"
#include "engine/generate/generate.h"
#include "engine/serve/histogram.h"
#include "engine/serve/step_runner.h"
#include "tests/support/embedded_model.h"
#include "tests/support/nonfinite_models.h"
#include "tests/support/test.h"
#include "tests/support/tiny_gguf.h"

namespace llm::test {
namespace {

using Ids = std::vector<TokenId>;

constexpr std::size_t kContext = 400;
constexpr std::size_t kLongContext = 2048;

std::unique_ptr<TextService> start(const std::shared_ptr<const Model>& model,
                                   SchedulerOptions options, std::size_t context = kContext,
                                   const TextService::Speculate& speculate = {}) {
  options.context = context;
  auto executor = require_ok(Executor::create(
      model, {.context = context, .batch = options.step_tokens, .kv_pages = options.kv_pages}));
  return require_ok(TextService::start(executor, options, speculate));
}

/// What a text is compared by.
struct Told {
  std::string events;  ///< joined
  Ids ids;
  StopReason reason = StopReason::kLength;
  std::string hash;
  std::vector<std::pair<TokenId, double>> logprobs;

  bool operator==(const Told&) const = default;

  void add(const std::vector<Logprobs>& more) {
    for (const Logprobs& one : more) {
      logprobs.emplace_back(one.chosen.id, one.chosen.logprob);
      for (const TokenLogprob& token : one.top) logprobs.emplace_back(token.id, token.logprob);
    }
  }
};

Told alone(const std::shared_ptr<const Model>& model, TextRequest request,
           std::size_t context = kContext) {
  auto session = require_ok(open_sequence(model, {.context = context}));
  Told told;
  Sha256 hash;
  std::vector<float> rows;
  request.options.on_logits = [&](std::span<const float> some) {
    hash.update(std::as_bytes(some));
    rows.insert(rows.end(), some.begin(), some.end());
  };
  const auto result =
      generate(*session, request.prompt, request.options, [&](const GenerateEvent& event) {
        told.events += event.text;
        return Status(Ok{});
      });
  REQUIRE(result.ok());
  told.ids = result->ids;
  told.reason = result->stop_reason;
  if (request.hash_logits) told.hash = hash.hex();
  const std::size_t n_vocab = model->config().n_vocab;
  for (std::size_t i = 0; request.prompt_logprobs && i + 1 < request.prompt.size(); ++i) {
    told.add({logprobs_of(std::span(rows).subspan(i * n_vocab, n_vocab), request.prompt[i + 1],
                          *request.options.logprobs)});
  }
  told.add(result->logprobs);
  return told;
}

/// A text under way; `told` once `end` is there.
struct Listener {
  Told told;
  std::promise<Result<ServedText>> end;

  TextJob job(TextRequest request) {
    return {.request = std::move(request),
            .on_event = [this](const GenerateEvent& event) { told.events += event.text; },
            .on_end = [this](const Result<ServedText>& text) { end.set_value(text); }};
  }
  Result<ServedText> wait() { return end.get_future().get(); }
  Told wait_for_text() {
    const auto text = require_ok(wait());
    REQUIRE(text.result.text == told.events);
    told.ids = text.result.ids;
    told.reason = text.result.stop_reason;
    told.hash = text.logits_sha256;
    told.add(text.prompt_logprobs);
    told.add(text.result.logprobs);
    return told;
  }
};

std::vector<TextRequest> mixed_requests(const Model& model, std::size_t n) {
  std::mt19937 random(5);
  std::vector<TextRequest> requests;
  for (std::size_t i = 0; i < n; ++i) {
    TextRequest& request = requests.emplace_back();
    request.prompt = model.tokenizer().encode("Once upon a time there was a");
    // Some grow over a page while they decode, so that pages run out.
    const std::size_t length = i % 3 == 0 ? 240 + random() % 15 : 7 + random() % 30;
    while (request.prompt.size() < length)
      request.prompt.push_back(static_cast<TokenId>(random() % model.config().n_vocab));
    GenerateOptions& options = request.options;
    options.max_tokens = i % 7 == 6 ? 0 : 20 + random() % 20;
    options.sampler = i % 4 == 0 ? SamplerOptions{.temperature = 0} : kUsualSampling;
    options.sampler.seed = i;
    options.sequence = i % 2;
    options.stop = i % 5 == 1 ? std::vector<std::string>{". ", "!"} : std::vector<std::string>{};
    if (i % 6 == 2)
      options.logit_bias = std::make_shared<std::vector<LogitBias>>(
          std::vector<LogitBias>{{request.prompt[3], 5.0F}, {7, -100.0F}});
    if (i % 3 != 1) options.logprobs = i % 4;
    request.prompt_logprobs = i % 3 == 0;
    request.hash_logits = i % 2 == 0;
  }
  return requests;
}

}  // namespace

TEST_CASE("served texts are those generated alone, with logits and log probabilities", "[serve]") {
  const auto model = embedded();
  const auto requests = mixed_requests(*model, effort<std::size_t>(42, 12));
  std::vector<Told> expected;
  for (const TextRequest& request : requests) expected.push_back(alone(model, request));
  for (const std::size_t kv_pages : {60, 4}) {
    for (const std::size_t step_tokens : {32, 512}) {
      CAPTURE(kv_pages, step_tokens);
      const auto service = start(
          model, {.step_tokens = step_tokens, .parallel = 16, .queue = 100, .kv_pages = kv_pages});
      std::vector<Listener> listeners(requests.size());
      for (std::size_t i = 0; i < requests.size(); ++i) {
        std::vector<TextJob> jobs;
        jobs.push_back(listeners[i].job(requests[i]));
        const auto submission = service->submit(std::move(jobs));
        REQUIRE(submission.admission == Admission::kAccepted);
        REQUIRE(submission.first == i);
      }
      for (std::size_t i = 0; i < requests.size(); ++i) {
        CAPTURE(i);
        REQUIRE((listeners[i].wait_for_text() == expected[i]));
      }
      const ServiceFigures figures = service->figures();
      REQUIRE(figures.finished == requests.size());
      REQUIRE(figures.running + figures.waiting + figures.kv_pages_in_use == 0);
      REQUIRE((kv_pages > 4 || figures.preemptions > effort<std::uint64_t>(1, 0)));
      std::size_t n_tokens = 0;
      for (const Told& told : expected) n_tokens += told.ids.size();
      REQUIRE(figures.generated_tokens == n_tokens);
    }
  }
}

/// Proposes how one of some texts goes on, right for five tokens, then wrong.
class Knowing final : public Proposer {
 public:
  explicit Knowing(const std::vector<Ids>& texts) : texts_(texts) {}
  std::string_view name() const override { return "knowing"; }
  Proposal propose(const ProposalRequest& request, const Worth& worth) override {
    Proposal proposal;
    const std::size_t n = request.text.size();
    for (const Ids& text : texts_) {
      if (text.size() <= n || !std::ranges::equal(request.text, std::span(text).first(n))) continue;
      for (std::size_t i = n; i < text.size() && proposal.tokens.size() < worth(0); ++i)
        proposal.tokens.push_back(i < n + 5 ? text[i] : text[i] / 2);
      break;
    }
    return proposal;
  }

 private:
  const std::vector<Ids>& texts_;
};

TEST_CASE("served texts are the same with proposals, right and wrong ones", "[serve]") {
  const std::size_t parallel = GENERATE(2, 16);
  const std::size_t kv_pages = GENERATE(60, 4);
  if (kSanitized && (parallel == 2) != (kv_pages == 60)) return;
  const auto model = embedded();
  auto requests = mixed_requests(*model, effort<std::size_t>(42, 12));
  for (std::size_t i = 0; i < requests.size(); ++i) requests[i].hash_logits = i % 9 == 0;
  std::vector<Told> expected;
  std::vector<Ids> texts;
  for (const TextRequest& request : requests) {
    expected.push_back(alone(model, request));
    Ids& text = texts.emplace_back(request.prompt);
    text.insert(text.end(), expected.back().ids.begin(), expected.back().ids.end());
  }
  CAPTURE(parallel, kv_pages);
  const auto service = start(
      model, {.step_tokens = 64, .parallel = parallel, .queue = 100, .kv_pages = kv_pages},
      kContext, [&] { return std::make_unique<Speculation>(std::make_unique<Knowing>(texts), 7); });
  std::vector<Listener> listeners(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    std::vector<TextJob> jobs;
    jobs.push_back(listeners[i].job(requests[i]));
    REQUIRE(service->submit(std::move(jobs)).admission == Admission::kAccepted);
  }
  std::size_t n_tokens = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    CAPTURE(i);
    REQUIRE((listeners[i].wait_for_text() == expected[i]));
    n_tokens += expected[i].ids.size();
  }
  const ServiceFigures figures = service->figures();
  CHECK(figures.generated_tokens == n_tokens);
  CHECK(figures.kv_pages_in_use == 0);
  CHECK(figures.accepted_tokens > n_tokens / 20);
  CHECK(figures.proposed_tokens > figures.accepted_tokens);
}

/// A long prompt, and how many tokens follow it.
TextRequest long_request(const Model& model, std::size_t n_prompt, std::size_t n_new,
                         std::uint32_t seed) {
  std::mt19937 random(seed);
  TextRequest request;
  for (std::size_t i = 0; i < n_prompt; ++i)
    request.prompt.push_back(static_cast<TokenId>(random() % model.config().n_vocab));
  request.options.max_tokens = n_new;
  request.options.ignore_eos = true;
  request.options.sampler.seed = seed;
  request.options.logprobs = 3;  // of whole rows, so bits of the logits are compared
  return request;
}

TEST_CASE("equal prompts of 1,700 tokens share six pages, whatever else runs", "[serve]") {
  const std::size_t n_beside = GENERATE(1, 0);
  const bool comes_later = GENERATE(true, false);
  if (kSanitized && (n_beside == 0 || !comes_later)) return;
  const auto model = embedded();
  const TextRequest request = long_request(*model, 1700, 40, 1);
  const Told expected = alone(model, request, kLongContext);
  CAPTURE(n_beside, comes_later);
  const auto service = start(model, {.kv_pages = 60}, kLongContext);
  std::vector<Listener> listeners(2 + n_beside);
  std::atomic<std::size_t> n_begun = 0;
  const auto submit = [&](std::size_t i, const TextRequest& each) {
    std::vector<TextJob> jobs;
    jobs.push_back(listeners[i].job(each));
    jobs[0].on_event = [&, i, tell = std::move(jobs[0].on_event)](const GenerateEvent& event) {
      if (listeners[i].told.events.empty()) ++n_begun;
      tell(event);
    };
    REQUIRE(service->submit(std::move(jobs)).admission == Admission::kAccepted);
  };
  if (n_beside == 1) {
    submit(2, long_request(*model, 20, 600, 2));
    while (n_begun == 0) std::this_thread::yield();
  }
  submit(0, request);
  if (comes_later) {
    while (n_begun == n_beside) std::this_thread::yield();
  }
  submit(1, request);
  REQUIRE((listeners[0].wait_for_text() == expected));
  REQUIRE((listeners[1].wait_for_text() == expected));
  if (n_beside == 1) listeners[2].wait_for_text();
  const ServiceFigures figures = service->figures();
  CHECK(figures.kv_pages_shared == 6);
  // The last token of a text is not evaluated, and one that is shared only once.
  if (comes_later || n_beside == 0) {
    CHECK(figures.evaluated_tokens == 1700 + 39 + (1700 - 6 * 256) + 39 + n_beside * (20 + 599));
  }
}

TEST_CASE("equal prompts that end with a page or behind it, the second beside the first",
          "[serve]") {
  const auto model = embedded();
  for (const std::size_t n_prompt : {256, 300, 512}) {
    const TextRequest request = long_request(*model, n_prompt, 30, 3);
    const Told expected = alone(model, request, kLongContext);
    for (const std::size_t step_tokens : {512, 64, 16}) {
      CAPTURE(n_prompt, step_tokens);
      const auto service = start(model, {.step_tokens = step_tokens, .kv_pages = 60}, kLongContext);
      std::vector<Listener> listeners(3);
      std::vector<TextJob> jobs;
      for (Listener& listener : listeners) jobs.push_back(listener.job(request));
      REQUIRE(service->submit(std::move(jobs)).admission == Admission::kAccepted);
      for (Listener& listener : listeners) REQUIRE((listener.wait_for_text() == expected));
      // The last token's row of logits is computed, and with it its page.
      REQUIRE(service->figures().kv_pages_shared == 2 * ((n_prompt - 1) / 256));
    }
  }
}

TEST_CASE("a service takes all of some texts or none, and what fits", "[serve]") {
  const auto model = embedded();
  const auto service = start(model, {.step_tokens = 64, .parallel = 1, .queue = 2, .kv_pages = 1});
  const auto request = [](std::size_t n_prompt, std::size_t n_new) {
    TextRequest made{.prompt = Ids(n_prompt, 9), .options = {}};
    made.options.max_tokens = n_new;
    made.options.ignore_eos = true;
    return made;
  };
  const auto submit = [&](std::size_t n, const TextRequest& each) {
    std::vector<TextJob> jobs;
    for (std::size_t i = 0; i < n; ++i) jobs.push_back({.request = each, .on_event = {}});
    return service->submit(std::move(jobs)).admission;
  };
  REQUIRE(submit(1, request(257, 1)) == Admission::kTooLong);  // a second page
  REQUIRE(submit(1, request(200, 58)) == Admission::kTooLong);
  REQUIRE(submit(1, request(kContext + 1, 1)) == Admission::kTooLong);
  REQUIRE(submit(4, request(10, 1)) == Admission::kQueueFull);
  REQUIRE(submit(3, request(100, 156)) == Admission::kAccepted);
  REQUIRE(submit(1, request(1, 1)) == Admission::kQueueFull);
  service->cancel(0, 3);
  while (service->figures().cancelled < 3) std::this_thread::yield();
  Listener listener;
  std::vector<TextJob> jobs;
  jobs.push_back(listener.job(request(200, 57)));
  REQUIRE(service->submit(std::move(jobs)).admission == Admission::kAccepted);
  REQUIRE(listener.wait_for_text().ids.size() == 57);
  service->cancel(3, 1);  // it has finished: nothing happens
}

TEST_CASE("a text whose logits are no numbers ends alone", "[serve]") {
  ScratchDirectory directory;
  auto broken = TinyGguf::llama();
  make_token_overflow(broken, 40);
  const auto model =
      require_ok(Model::load(directory.write("m.gguf", broken.bytes()), {.threads = 1}));
  const auto service = start(model, {.step_tokens = 64, .parallel = 4, .queue = 4, .kv_pages = 8});
  std::vector<Listener> listeners(3);
  std::vector<TextJob> jobs;
  for (std::size_t i = 0; i < 3; ++i) {
    TextRequest request{.prompt = {1, 50, i == 1 ? 40 : 51, 52}, .options = {}};
    request.options.max_tokens = 5;
    request.options.ignore_eos = true;
    request.options.logit_bias =
        std::make_shared<std::vector<LogitBias>>(std::vector<LogitBias>{{40, -100.0F}});
    request.hash_logits = i == 1;
    jobs.push_back(listeners[i].job(request));
  }
  REQUIRE(service->submit(std::move(jobs)).admission == Admission::kAccepted);
  REQUIRE(listeners[0].wait().ok());
  REQUIRE(listeners[2].wait().ok());
  must_fail(listeners[1].wait(), ErrorCode::kNonFinite, {"position 2"});
  REQUIRE(service->figures().failed == 1);
  REQUIRE(service->figures().kv_pages_in_use == 0);
}

TEST_CASE("a service that ends drops its texts", "[serve]") {
  const auto model = embedded();
  TextRequest request{.prompt = {1, 9}, .options = {}};
  request.options.max_tokens = kContext - 2;
  request.options.ignore_eos = true;
  std::atomic<bool> has_begun = false;
  std::atomic<bool> has_ended = false;
  {
    const auto service =
        start(model, {.step_tokens = 64, .parallel = 4, .queue = 4, .kv_pages = 8});
    std::vector<TextJob> jobs;
    jobs.push_back({.request = request,
                    .on_event = [&](const GenerateEvent&) { has_begun = true; },
                    .on_end = [&](const Result<ServedText>&) { has_ended = true; }});
    REQUIRE(service->submit(std::move(jobs)).admission == Admission::kAccepted);
    while (!has_begun) std::this_thread::yield();
  }
  REQUIRE_FALSE(has_ended);
}

TEST_CASE("a histogram counts values up to each limit", "[serve]") {
  Histogram histogram({1, 2, 4});
  for (const double value : {0.5, 1.0, 1.5, 4.0, 9.0}) histogram.add(value);
  REQUIRE(histogram.counts() == std::vector<std::uint64_t>{2, 1, 1, 1});
  REQUIRE(histogram.sum() == 16);
}

TEST_CASE("an error of the executor or of who takes the logits ends the step", "[serve]") {
  const auto model = embedded();
  auto executor = require_ok(Executor::create(model, {.context = 16}));
  StepRunner runner(executor);
  const Step step{.preempted = {}, .parts = {{4, 0, 3, true}}, .n_tokens = 3};
  const auto take = [](const StepPart&, std::span<const float>) -> Status {
    return Error{.code = ErrorCode::kNonFinite, .field = "mine", .message = ""};
  };
  const auto field_of = [&](const Ids& ids) {
    return must_fail(runner.run(
                         step, [&](RequestId) { return std::span(ids); }, take))
        .field;
  };
  REQUIRE(field_of(Ids(3, 1 << 30)) == "token id");
  REQUIRE(field_of(Ids(3, 1)) == "mine");
}

}  // namespace llm::test
