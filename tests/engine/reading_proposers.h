#pragma once

#include "tests/engine/serve_support.h"
#include "tests/engine/speculation_support.h"

namespace llm::test {

/// Makes a Speculation whose proposer reads rows of the model, with so many tokens at once.
using MakeSpeculation = std::function<std::unique_ptr<Speculation>(std::size_t length)>;

/// 100 random texts of two prompts each with proposals: tokens and rows of plain decoding.
inline Counts require_texts_of_plain_decoding(const std::shared_ptr<const Model>& model,
                                              std::size_t n_ids, const MakeSpeculation& make,
                                              std::mt19937& random) {
  Counts counts;
  for (int run = 0; run < 100; ++run) {
    GenerateOptions options;
    options.sampler.temperature = run % 2 == 0 ? 0.0F : 1.0F;
    options.sampler.seed = static_cast<std::uint64_t>(run);
    options.sampler.top_k = 3;
    options.max_tokens = 24;
    options.on_logits = [](std::span<const float>) {};
    std::vector<std::vector<TokenId>> prompts(2);
    for (auto& prompt : prompts)
      for (std::size_t i = 1 + random() % 60; i > 0; --i)
        prompt.push_back(static_cast<TokenId>(3 + random() % n_ids));
    const auto plain = require_ok(open_sequence(model, {.context = 300}));
    const auto fast = require_ok(open_sequence(model, {.context = 300}));
    const auto speculation = make(1 + random() % 4);
    fast->set_on_normed([&speculation](std::size_t first, std::span<const float> rows) {
      speculation->source().take_rows(first, rows);
    });
    CAPTURE(run);
    REQUIRE(see(*plain, prompts, options, nullptr) ==
            see(*fast, prompts, options, speculation.get(), &counts));
  }
  return counts;
}

/// Twelve random requests to a service with proposals: the tokens of each alone. @return its
/// figures
inline auto require_requests_of_plain_decoding(const std::shared_ptr<const Model>& model,
                                               std::size_t n_ids, const SchedulerOptions& options,
                                               const MakeSpeculation& make) {
  std::mt19937 random(4);
  std::vector<GenerationRequest> requests;
  for (std::uint64_t i = 0; i < 12; ++i) {
    Ids prompt(1 + random() % 120);
    for (TokenId& id : prompt) id = static_cast<TokenId>(3 + random() % n_ids);
    requests.push_back(text_request(prompt, 1 + random() % 60, i));
    requests.back().options.sampler.temperature = i % 2 == 0 ? 0.0F : 1.0F;
    requests.back().options.sampler.top_k = 3;
  }
  std::vector<Listener> listeners(requests.size());
  const auto service = start(model, options, [&] { return make(3); });
  for (std::size_t i = 0; i < requests.size(); ++i)
    submit(*service, {listeners[i].job(requests[i])});
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const GenerationOutput text = require_ok(listeners[i].wait());
    const auto alone = require_ok(open_sequence(model, {.context = options.context}));
    const auto expected = require_ok(generate(*alone, requests[i].prompt, requests[i].options));
    REQUIRE(text.result.ids == expected.ids);
  }
  return service->figures();
}

}  // namespace llm::test
