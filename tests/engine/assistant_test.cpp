// A draft that reads the keys and values of its model: its logits are those of transformers, and
// what it proposes changes nothing but the time.

#include "base/json.h"
#include "engine/generation/assistant_proposer.h"
#include "tests/engine/reading_proposers.h"
#include "tests/support/isas.h"
#include "tests/support/tiny_model.h"

namespace llm::test {
namespace {

const std::string kTrunk = LLM_SOURCE_DIR "/tests/golden/architectures/gemma4.gguf";
const std::string kAssistant = LLM_SOURCE_DIR "/tests/golden/assistant/gemma4-assistant";

struct Pair {
  std::shared_ptr<const Model> trunk;
  std::shared_ptr<const Model> assistant;
};

Pair load_pair(LoadOptions options = {.threads = 1}) {
  Pair pair;
  pair.trunk = require_ok(Model::load(kTrunk, options));
  options.trunk = pair.trunk.get();
  pair.assistant = require_ok(Model::load(kAssistant + ".gguf", options));
  return pair;
}

std::shared_ptr<Assistant> assistant_of(const Pair& pair, KvType kv = KvType::kF16) {
  return require_ok(Assistant::create(pair.assistant, kv, 512));
}

std::unique_ptr<Speculation> assisted(const std::shared_ptr<Assistant>& assistant,
                                      std::optional<std::size_t> length) {
  return std::make_unique<Speculation>(std::make_unique<AssistantProposer>(assistant), length);
}

/// The final norm of the last position.
std::vector<float> last_row(Sequence& sequence, std::span<const TokenId> tokens) {
  std::vector<float> row(sequence.model().config().d_model);
  sequence.set_on_normed([&row](std::size_t, std::span<const float> rows) {
    std::ranges::copy(rows.last(row.size()), row.begin());
  });
  require_ok(sequence.evaluate(tokens, LogitRows::kLast));
  sequence.set_on_normed({});
  return row;
}

/// Logits of `n` tokens, the likeliest ones, that follow a text.
std::vector<std::vector<float>> steps_of(Assistant& assistant, Sequence& sequence,
                                         std::span<const TokenId> text, std::size_t n) {
  std::vector<float> hidden = last_row(sequence, text.first(text.size() - 1));
  TokenId token = text.back();
  std::vector<std::vector<float>> steps;
  while (steps.size() < n) {
    const auto rows = assistant.evaluate(*sequence.state(), text.size() - 1, token, hidden);
    REQUIRE(!rows.logits.empty());
    steps.emplace_back(rows.logits.begin(), rows.logits.end());
    hidden.assign(rows.hidden.begin(), rows.hidden.end());
    token = static_cast<TokenId>(std::ranges::max_element(rows.logits) - rows.logits.begin());
  }
  return steps;
}

}  // namespace

TEST_CASE("assistant: its logits are those of transformers", "[assistant]") {
  const Pair pair = load_pair({.compute = Compute::kF32, .threads = 1});
  const auto assistant = assistant_of(pair, KvType::kF32);
  const Json golden = parse_json(read_file(kAssistant + ".json"));
  REQUIRE(golden["texts"].size() == 3);
  for (const Json& of_text : golden["texts"]) {
    const auto text = of_text["ids"].get<std::vector<TokenId>>();
    const auto sequence =
        require_ok(open_sequence(pair.trunk, {.context = 512, .kv = KvType::kF32}));
    const auto expected = of_text["logits"].get<std::vector<std::vector<double>>>();
    const auto found = steps_of(*assistant, *sequence, text, expected.size());
    for (std::size_t step = 0; step < expected.size(); ++step) {
      double error = 0;
      double sum = 0;
      REQUIRE(found[step].size() == expected[step].size());
      for (std::size_t i = 0; i < expected[step].size(); ++i) {
        error += std::pow(double{found[step][i]} - expected[step][i], 2);
        sum += std::pow(expected[step][i], 2);
      }
      CAPTURE(text.size(), step, error / sum);
      CHECK(error <= 1e-10 * sum);
    }
  }
}

TEST_CASE("assistant: its logits do not depend on threads and instruction sets", "[assistant]") {
  const std::vector<TokenId> text = {1, 40, 7, 300, 12, 9, 77, 31};
  std::vector<std::vector<float>> expected;
  for (const Isa isa : supported_isas()) {
    for (const int threads : {1, 3}) {
      const Pair pair = load_pair({.isa = isa, .threads = threads});
      const auto sequence = require_ok(open_sequence(pair.trunk, {.context = 512}));
      const auto found = steps_of(*assistant_of(pair), *sequence, text, 3);
      CAPTURE(isa_name(isa), threads);
      if (expected.empty()) expected = found;
      REQUIRE(found == expected);
    }
  }
}

TEST_CASE("assistant: a text and its rows are those of plain decoding", "[assistant]") {
  const Pair pair = load_pair();
  const auto assistant = assistant_of(pair);
  std::mt19937 random(9);
  const Counts counts = require_texts_of_plain_decoding(
      pair.trunk, 360, [&](std::size_t length) { return assisted(assistant, length); }, random);
  CAPTURE(counts.proposed, counts.accepted, counts.passes);
  REQUIRE(counts.proposed > 1000);
  REQUIRE(counts.accepted > 5);
  REQUIRE(counts.accepted < counts.proposed);
}

TEST_CASE("assistant: requests of a service, also preempted ones, are those of plain decoding",
          "[assistant]") {
  const Pair pair = load_pair();
  const SchedulerOptions options{
      .step_tokens = 32, .parallel = 6, .context = 400, .kv_pages = GENERATE(14, 90)};
  const auto assistant = assistant_of(pair);
  const auto figures = require_requests_of_plain_decoding(
      pair.trunk, 360, options, [&](std::size_t length) { return assisted(assistant, length); });
  REQUIRE(figures.proposed_tokens > 20);
}

TEST_CASE("assistant: keys that are not there give no proposal", "[assistant]") {
  const Pair pair = load_pair();
  const auto assistant = assistant_of(pair);
  const auto sequence = require_ok(open_sequence(pair.trunk, {.context = 512}));
  const std::vector<TokenId> text = {1, 40, 7, 300};
  const std::vector<float> hidden = last_row(*sequence, text);
  CHECK(!assistant->evaluate(*sequence->state(), text.size(), 5, hidden).logits.empty());
  CHECK(assistant->evaluate(*sequence->state(), 257, 5, hidden).logits.empty());
  sequence->truncate(0);
  CHECK(assistant->evaluate(*sequence->state(), text.size(), 5, hidden).logits.empty());
}

TEST_CASE("assistant: it is no model by itself, and none of another model", "[assistant]") {
  const Error alone = must_fail(Model::load(kAssistant + ".gguf", {.threads = 1}));
  CHECK(alone.code == ErrorCode::kUnsupported);
  CHECK(alone.to_string().find("reads the keys and values of a gemma4 model") != std::string::npos);
  CHECK(alone.to_string().find("--draft") != std::string::npos);

  const auto llama = loaded(TinyGguf::llama());
  const Error other =
      must_fail(Model::load(kAssistant + ".gguf", {.threads = 1, .trunk = llama.get()}));
  CHECK(other.code == ErrorCode::kUsage);
  CHECK(other.to_string().find("need a draft of a llama model") != std::string::npos);

  const auto wide = require_ok(
      Model::load(LLM_SOURCE_DIR "/tests/golden/architectures/gemma4moe.gguf", {.threads = 1}));
  const Error width =
      must_fail(Model::load(kAssistant + ".gguf", {.threads = 1, .trunk = wide.get()}));
  CHECK(width.code == ErrorCode::kUsage);
  CHECK(width.to_string().find("embedding_length_out") != std::string::npos);

  const auto narrow = require_ok(
      Model::load(LLM_SOURCE_DIR "/tests/golden/architectures/gemma4-shared.gguf", {.threads = 1}));
  const Error heads =
      must_fail(Model::load(kAssistant + ".gguf", {.threads = 1, .trunk = narrow.get()}));
  CHECK(heads.code == ErrorCode::kMalformed);
  CHECK(heads.to_string().find("head_count_kv") != std::string::npos);
}

}  // namespace llm::test
