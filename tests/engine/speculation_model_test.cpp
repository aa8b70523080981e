// Text with speculation is text without it, on the embedded models: every proposer, cut caches, a
// full context, a chat.

#include "engine/generate/conversation.h"
#include "engine/generate/draft_proposer.h"
#include "engine/generate/ngram_proposer.h"
#include "tests/engine/speculation_support.h"
#include "tests/support/embedded_model.h"
#include "tests/support/test.h"

namespace llm::test {
namespace {

std::unique_ptr<Sequence> open(const std::shared_ptr<const Model>& model, std::size_t context,
                               const SequenceOptions& how = {}) {
  return require_ok(open_sequence(model, {.context = context, .batch = 32}, how));
}

/// Logits after `more` tokens fed one by one: what a row left over in the cache would change.
std::vector<float> logits_behind(Sequence& sequence, std::size_t more) {
  std::vector<float> rows;
  for (std::size_t i = 0; i < more && sequence.position() < sequence.context(); ++i) {
    const auto id = static_cast<TokenId>(100 + i);
    const auto row = require_ok(sequence.evaluate({&id, 1}, LogitRows::kLast));
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return rows;
}

}  // namespace

TEST_CASE("the embedded model: every proposer gives the plain text and logits", "[speculation]") {
  const auto model = embedded(1, "fable-3m-f16.gguf");
  const auto draft = embedded();
  const auto prompt = model->tokenizer().encode(
      "One day, a little fox named Pip found a red ball. A little fox named Pip");
  std::size_t way = 0;
  for (GenerateOptions options : ways()) {
    CAPTURE(++way);
    if (kSanitized && way % 5 != 1) continue;
    for (const bool shifts : {false, true}) {
      const std::size_t context = shifts ? 48 : 256;
      options.context_shift = shifts;
      const auto plain_session = open(model, context);
      const Seen plain = see(*plain_session, {prompt, {50, 60}}, options, nullptr);
      const auto state = logits_behind(*plain_session, 3);
      const auto check = [&](const char* name, std::unique_ptr<Proposer> proposer,
                             std::optional<std::size_t> length, bool cached = true) {
        CAPTURE(name);
        const auto session = open(model, context, {.use_cache = cached});
        Speculation speculation(std::move(proposer), length);
        Counts counts;
        REQUIRE(see(*session, {prompt, {50, 60}}, options, &speculation, &counts) == plain);
        REQUIRE(session->position() + 3 >= plain_session->position());
        REQUIRE(logits_behind(*session, 3) == state);
        return counts;
      };
      check("ngram", std::make_unique<NgramProposer>(), 5);
      check("ngram, adaptive", std::make_unique<NgramProposer>(), {});
      check("draft", std::make_unique<DraftProposer>(open(draft, context)), 4);
      check(
          "random",
          std::make_unique<FunctionProposer>(random_guess(
              way, known(prompt, plain), model->config().n_vocab, *model->tokenizer().spec().eos)),
          {});
      if (way == 1) check("no cache", std::make_unique<NgramProposer>(), 5, false);
    }
  }
}

TEST_CASE("a draft draws with the text's own random numbers", "[speculation]") {
  const auto model = embedded(1, "fable-3m-f16.gguf");
  const auto draft = embedded();
  GenerateOptions options;
  options.sampler = kUsualSampling;
  options.sampler.seed = 3;
  options.max_tokens = 60;
  options.ignore_eos = true;
  const auto prompt = model->tokenizer().encode("Once upon a time");
  const auto session = open(model, 256);
  Speculation speculation(std::make_unique<DraftProposer>(open(draft, 256)), 4);
  Counts counts;
  see(*session, {prompt}, options, &speculation, &counts);
  // Two quantizations of one model, sampled apart, would agree on fewer than half of the tokens.
  CHECK(counts.accepted * 4 > counts.proposed * 3);
  CHECK(counts.passes < 25);
}

TEST_CASE("a chat that forgets turns is the same chat with speculation", "[speculation]") {
  const auto model = embedded(1, "fable-3m-f16.gguf");
  const auto chat = [&](Speculation* speculation) {
    const auto session = open(model, 120);
    Conversation conversation(*session, ChatFormat::kZephyr);
    GenerateOptions options;
    options.sampler = kUsualSampling;
    options.sampler.seed = 11;
    options.max_tokens = 30;
    options.speculation = speculation;
    std::vector<std::string> replies;
    for (const char* message : {"Tell me of a fox.", "And then?", "And then?", "Again, please."}) {
      REQUIRE(conversation.ask(message).ok());
      const auto reply = require_ok(conversation.reply(options));
      replies.push_back(reply.text + std::to_string(session->position()));
    }
    REQUIRE(conversation.ask_again().ok());
    REQUIRE(conversation.reply(options).ok());
    replies.push_back(conversation.turns().back().reply);
    replies.push_back(std::to_string(conversation.next_draw()) + "/" +
                      std::to_string(conversation.forgotten_turns()));
    const auto state = logits_behind(*session, 2);
    for (const float logit : state) replies.push_back(std::to_string(logit));
    return replies;
  };
  const auto plain = chat(nullptr);
  Speculation ngram(std::make_unique<NgramProposer>(), 4);
  CHECK(chat(&ngram) == plain);
  Speculation draft(std::make_unique<DraftProposer>(open(embedded(), 120)), 3);
  CHECK(chat(&draft) == plain);
}

}  // namespace llm::test
