// Texts from a GenerationService: each is the one that is generated alone, with its logits and log
// probabilities, whatever runs beside it.

#include "engine/batching/generation_service.h"

#include "base/sha256.h"
#include "engine/batching/batch_runner.h"
#include "engine/batching/histogram.h"
#include "engine/generation/generate.h"
#include "tests/engine/serve_support.h"
#include "tests/support/nonfinite_models.h"
#include "tests/support/tiny_adapter.h"
#include "tests/support/tiny_model.h"

namespace llm::test {
namespace {

constexpr std::size_t kShort = 400;  // a context
constexpr std::size_t kLong = 2048;

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

Told alone(const std::shared_ptr<const Model>& model, GenerationRequest request,
           std::size_t context = kShort) {
  auto session =
      require_ok(open_sequence(model, {.context = context}, {.adapters = request.adapters}));
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

/// What a text came to, once it is there.
Told told_by(Listener& listener) {
  const auto text = require_ok(listener.wait());
  REQUIRE(text.result.text == listener.events);
  Told told{.events = listener.events,
            .ids = text.result.ids,
            .reason = text.result.stop_reason,
            .hash = text.logits_sha256,
            .logprobs = {}};
  told.add(text.prompt_logprobs);
  told.add(text.result.logprobs);
  return told;
}

std::vector<GenerationRequest> mixed_requests(const Model& model, std::size_t n) {
  std::mt19937 random(5);
  std::vector<GenerationRequest> requests;
  for (std::size_t i = 0; i < n; ++i) {
    GenerationRequest& request = requests.emplace_back();
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
  for (const GenerationRequest& request : requests) expected.push_back(alone(model, request));
  for (const std::size_t kv_pages : {60, 4}) {
    for (const std::size_t step_tokens : {32, 512}) {
      CAPTURE(kv_pages, step_tokens);
      const auto service = start(model, {.step_tokens = step_tokens,
                                         .parallel = 16,
                                         .queue = 100,
                                         .context = kShort,
                                         .kv_pages = kv_pages});
      std::vector<Listener> listeners(requests.size());
      for (std::size_t i = 0; i < requests.size(); ++i)
        REQUIRE(submit(*service, {listeners[i].job(requests[i])}) == i);
      for (std::size_t i = 0; i < requests.size(); ++i) {
        CAPTURE(i);
        REQUIRE((told_by(listeners[i]) == expected[i]));
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

TEST_CASE("served texts have adapters of their own", "[serve][adapter]") {
  const ScratchDirectory folder;
  LoadOptions options{.threads = 1};
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const TinyGguf adapter =
        tiny_adapter(*embedded(), {.rank = 4 * seed, .seed = seed, .amplitude = 0.05F});
    options.adapters.push_back(folder.write(fmt::format("{}.gguf", seed), adapter.bytes()));
  }
  const auto model =
      require_ok(Model::load(LLM_SOURCE_DIR "/models/fable-3m-q4_k_m.gguf", options));
  // The same prompts for each, which must not share keys and values.
  const auto prompts = mixed_requests(*model, 4);
  const std::vector<std::vector<float>> scales = {{}, {1}, {0, 1}, {0.5F, 0, 1}};
  std::vector<GenerationRequest> requests;
  for (const std::vector<float>& scale : scales)
    for (GenerationRequest request : prompts) {
      request.adapters = scale;
      requests.push_back(std::move(request));
    }
  std::vector<Told> expected;
  for (const GenerationRequest& request : requests) expected.push_back(alone(model, request));
  REQUIRE(expected[0].hash != expected[4].hash);
  for (const std::size_t kv_pages : {60, 4}) {  // 4: some are preempted
    const auto service = start(
        model,
        {.step_tokens = 64, .parallel = 16, .queue = 16, .context = kShort, .kv_pages = kv_pages});
    std::vector<Listener> listeners = submit(*service, requests);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      CAPTURE(i, kv_pages);
      REQUIRE((told_by(listeners[i]) == expected[i]));
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
  for (const GenerationRequest& request : requests) {
    expected.push_back(alone(model, request));
    Ids& text = texts.emplace_back(request.prompt);
    text.insert(text.end(), expected.back().ids.begin(), expected.back().ids.end());
  }
  CAPTURE(parallel, kv_pages);
  const auto service =
      start(model,
            {.step_tokens = 64,
             .parallel = parallel,
             .queue = 100,
             .context = kShort,
             .kv_pages = kv_pages},
            [&] { return std::make_unique<Speculation>(std::make_unique<Knowing>(texts), 7); });
  std::vector<Listener> listeners(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i)
    submit(*service, {listeners[i].job(requests[i])});
  std::size_t n_tokens = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    CAPTURE(i);
    REQUIRE((told_by(listeners[i]) == expected[i]));
    n_tokens += expected[i].ids.size();
  }
  const ServiceFigures figures = service->figures();
  CHECK(figures.generated_tokens == n_tokens);
  CHECK(figures.kv_pages_in_use == 0);
  CHECK(figures.accepted_tokens > n_tokens / 20);
  CHECK(figures.proposed_tokens > figures.accepted_tokens);
}

/// A long prompt, and how many tokens follow it.
GenerationRequest long_request(const Model& model, std::size_t n_prompt, std::size_t n_new,
                               std::uint32_t seed) {
  std::mt19937 random(seed);
  Ids prompt(n_prompt);
  for (TokenId& id : prompt) id = static_cast<TokenId>(random() % model.config().n_vocab);
  GenerationRequest request = text_request(prompt, n_new, seed);
  request.options.logprobs = 3;  // of whole rows, so bits of the logits are compared
  return request;
}

TEST_CASE("equal prompts of 1,700 tokens share six pages, whatever else runs", "[serve]") {
  const std::size_t n_beside = GENERATE(1, 0);
  const bool comes_later = GENERATE(true, false);
  if (kSanitized && (n_beside == 0 || !comes_later)) return;
  const auto model = embedded();
  const GenerationRequest request = long_request(*model, 1700, 40, 1);
  const Told expected = alone(model, request, kLong);
  CAPTURE(n_beside, comes_later);
  const auto service = start(model, {.context = kLong, .kv_pages = 60});
  std::vector<Listener> listeners(2 + n_beside);
  std::atomic<std::size_t> n_begun = 0;
  const auto begin = [&](std::size_t i, const GenerationRequest& each) {
    GenerationJob job = listeners[i].job(each);
    job.on_event = [&, i, tell = job.on_event](const GenerateEvent& event) {
      if (listeners[i].events.empty()) ++n_begun;
      tell(event);
    };
    submit(*service, {job});
  };
  if (n_beside == 1) {
    begin(2, long_request(*model, 20, 600, 2));
    while (n_begun == 0) std::this_thread::yield();
  }
  begin(0, request);
  if (comes_later) {
    while (n_begun == n_beside) std::this_thread::yield();
  }
  begin(1, request);
  REQUIRE((told_by(listeners[0]) == expected));
  REQUIRE((told_by(listeners[1]) == expected));
  if (n_beside == 1) told_by(listeners[2]);
  const ServiceFigures figures = service->figures();
  // Whole pages are found at once, the last one when its text has ended.
  const std::size_t n_shared = figures.kv_pages_shared == 7 ? 1699 : 6 * 256;
  CHECK((figures.kv_pages_shared == 6 || (comes_later && figures.kv_pages_shared == 7)));
  // The last token of a text is not evaluated, and one that is shared only once.
  if (comes_later || n_beside == 0) {
    CHECK(figures.evaluated_tokens == 1700 + 39 + (1700 - n_shared) + 39 + n_beside * (20 + 599));
  }
}

TEST_CASE("a text tells how far its prompt is, before its first token", "[serve]") {
  const auto model = embedded();
  const auto service = start(model, {.step_tokens = 500, .context = kLong, .kv_pages = 60});
  for (const std::size_t n_cached : {0, 1699}) {
    Listener listener;
    std::vector<PromptProgress> told;
    GenerationJob job = listener.job(long_request(*model, 1700, 4, 1));
    job.on_progress = [&](const PromptProgress& progress) {
      CHECK(listener.events.empty());
      told.push_back(progress);
    };
    submit(*service, {job});
    REQUIRE(listener.wait().ok());
    REQUIRE(told.size() == 1 + (1700 - n_cached + 499) / 500);
    for (std::size_t i = 0; i < told.size(); ++i) {
      CHECK(told[i].n_tokens == 1700);
      CHECK(told[i].n_cached == n_cached);
      CHECK(told[i].n_stored == std::min(n_cached + i * 500, std::size_t{1700}));
      CHECK((i == 0 ? told[i].seconds == 0 : told[i].seconds > told[i - 1].seconds));
    }
  }
}

TEST_CASE("equal prompts that end with a page or behind it, the second beside the first",
          "[serve]") {
  const auto model = embedded();
  for (const std::size_t n_prompt : {256, 300, 512}) {
    const GenerationRequest request = long_request(*model, n_prompt, 30, 3);
    const Told expected = alone(model, request, kLong);
    for (const std::size_t step_tokens : {512, 64, 16}) {
      CAPTURE(n_prompt, step_tokens);
      const auto service =
          start(model, {.step_tokens = step_tokens, .context = kLong, .kv_pages = 60});
      for (auto listeners = submit(*service, {request, request, request});
           Listener & listener : listeners)
        REQUIRE((told_by(listener) == expected));
      // The last token's row of logits is computed.
      REQUIRE(service->figures().kv_pages_shared >= 2 * ((n_prompt - 1) / 256));
    }
  }
}

TEST_CASE("what is computed again since it was evicted is counted", "[serve]") {
  const auto model = embedded();
  const auto service = start(model, {.step_tokens = 64, .context = kLong, .kv_pages = 8});
  const auto ask = [&](unsigned seed) {
    Listener listener;
    submit(*service, {listener.job(long_request(*model, 1500, 2, seed))});
    return require_ok(listener.wait());
  };
  REQUIRE(ask(1).lost.n_tokens == 0);
  REQUIRE(ask(1).cached_tokens == 1499);
  ask(2);
  const GenerationOutput again = ask(1);
  REQUIRE(again.lost.n_tokens >= 256);
  REQUIRE(again.lost.n_tokens <= 1500 - again.cached_tokens);
  REQUIRE(service->figures().recomputed_tokens[0] == again.lost.n_tokens);
  REQUIRE(service->figures().reused_tokens == 1499 + again.cached_tokens);
}

TEST_CASE("a service takes all of some texts or none, and what fits", "[serve]") {
  const auto model = embedded();
  const auto service = start(
      model, {.step_tokens = 64, .parallel = 1, .queue = 2, .context = kShort, .kv_pages = 1});
  const auto admission = [&](std::size_t n, std::size_t n_prompt, std::size_t n_new) {
    const GenerationJob job{.request = text_request(Ids(n_prompt, 9), n_new), .on_event = {}};
    return service->submit(std::vector<GenerationJob>(n, job)).admission;
  };
  REQUIRE(admission(1, 257, 1) == Admission::kTooLong);  // a second page
  REQUIRE(admission(1, 200, 58) == Admission::kTooLong);
  REQUIRE(admission(1, kShort + 1, 1) == Admission::kTooLong);
  REQUIRE(admission(4, 10, 1) == Admission::kQueueFull);
  REQUIRE(admission(3, 100, 156) == Admission::kAccepted);
  REQUIRE(admission(1, 1, 1) == Admission::kQueueFull);
  service->cancel(0, 3);
  while (service->figures().cancelled < 3) std::this_thread::yield();
  Listener listener;
  submit(*service, {listener.job(text_request(Ids(200, 9), 57))});
  REQUIRE(told_by(listener).ids.size() == 57);
  service->cancel(3, 1);  // it has finished: nothing happens
}

TEST_CASE("NaN logits end only their own request", "[serve]") {
  auto broken = TinyGguf::llama();
  make_token_overflow(broken, 40);
  const auto model = loaded(broken);
  const auto service = start(model, few_steps(kShort));
  std::vector<GenerationRequest> requests;
  for (std::size_t i = 0; i < 3; ++i) {
    requests.push_back(text_request({1, 50, i == 1 ? 40 : 51, 52}, 5));
    requests[i].options.logit_bias =
        std::make_shared<std::vector<LogitBias>>(std::vector<LogitBias>{{40, -100.0F}});
    requests[i].hash_logits = i == 1;
  }
  auto listeners = submit(*service, requests);
  REQUIRE(listeners[0].wait().ok());
  REQUIRE(listeners[2].wait().ok());
  must_fail(listeners[1].wait(), ErrorCode::kNonFinite, {"position 2"});
  REQUIRE(service->figures().failed == 1);
  REQUIRE(service->figures().kv_pages_in_use == 0);
}

TEST_CASE("a service that ends drops its texts", "[serve]") {
  const auto model = embedded();
  std::atomic<bool> has_begun = false;
  std::atomic<bool> has_ended = false;
  {
    const auto service = start(model, few_steps(kShort));
    submit(*service, {{.request = text_request({1, 9}, kShort - 2),
                       .on_event = [&](const GenerateEvent&) { has_begun = true; },
                       .on_end = [&](const Result<GenerationOutput>&) { has_ended = true; }}});
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
  BatchRunner runner(executor);
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
