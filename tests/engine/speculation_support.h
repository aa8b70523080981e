#pragma once

#include "engine/generation/generate.h"
#include "tests/support/test.h"

namespace llm::test {

/// Proposes what a function says, whatever is worth it.
class FunctionProposer final : public Proposer {
 public:
  using Function = std::function<std::vector<TokenId>(std::span<const TokenId> text)>;
  explicit FunctionProposer(Function function) : function_(std::move(function)) {}

  std::string_view name() const override { return "function"; }
  Proposal propose(const ProposalRequest& request, const Worth&) override {
    return {.tokens = function_(request.text), .grade = 0};
  }

 private:
  Function function_;
};

/// A guess that is right, wrong, right for a while, empty, too long, of tokens that end a text, or
/// of ids that no vocabulary has, at random.
/// @param known  the whole text as it comes to be, where that is known
inline FunctionProposer::Function random_guess(std::uint64_t seed, std::vector<TokenId> known,
                                               std::size_t n_vocab, TokenId end) {
  auto random = std::make_shared<std::mt19937_64>(seed);
  return [=](std::span<const TokenId> text) {
    std::mt19937_64& draw = *random;
    std::vector<TokenId> guess;
    const std::size_t length = draw() % 12;
    for (std::size_t i = 0; i < length; ++i) {
      const std::size_t at = text.size() + i;
      guess.push_back(at < known.size() ? known[at] : static_cast<TokenId>(draw() % n_vocab));
    }
    const auto spoil = [&](TokenId id) {
      if (!guess.empty()) guess[draw() % guess.size()] = id;
    };
    switch (draw() % 8) {
      case 0:
        spoil(static_cast<TokenId>(draw() % n_vocab));
        break;
      case 1:
        spoil(end);
        break;
      case 2:
        spoil(draw() % 2 == 0 ? -1 : static_cast<TokenId>(n_vocab));
        break;
      case 3:
        guess.resize(300, 5);
        break;
      case 4:
        guess.clear();
        break;
      default:
        break;
    }
    return guess;
  };
}

/// All that a user can see of a generation but its time.
struct Seen {
  std::vector<std::vector<TokenId>> ids;
  std::vector<std::string> texts;
  std::vector<StopReason> reasons;
  std::vector<std::pair<TokenId, double>> logprobs;
  std::vector<std::string> events;
  std::vector<float> rows;  ///< given to on_logits
  std::vector<TokenId> text;
  std::uint64_t next_draw = 0;

  bool operator==(const Seen&) const = default;
};

struct Counts {
  std::size_t proposed = 0;
  std::size_t accepted = 0;
  std::size_t passes = 0;
};

/// Runs the prompts after each other on one generator.
inline Seen see(Session& session, const std::vector<std::vector<TokenId>>& prompts,
                GenerateOptions options, Speculation* speculation, Counts* counts = nullptr) {
  Seen seen;
  options.speculation = speculation;
  if (options.on_logits) {
    options.on_logits = [&](std::span<const float> rows) {
      seen.rows.insert(seen.rows.end(), rows.begin(), rows.end());
    };
  }
  Generator generator(session);
  for (const auto& prompt : prompts) {
    const auto result =
        require_ok(generator.run(prompt, options, [&](const GenerateEvent& event) -> Status {
          seen.events.push_back(std::to_string(event.id.value_or(-1)) + std::string(event.text));
          return Ok{};
        }));
    seen.ids.push_back(result.ids);
    seen.texts.push_back(result.text);
    seen.reasons.push_back(result.stop_reason);
    for (const Logprobs& some : result.logprobs) {
      seen.logprobs.emplace_back(some.chosen.id, some.chosen.logprob);
      for (const TokenLogprob& one : some.top) seen.logprobs.emplace_back(one.id, one.logprob);
    }
    if (counts != nullptr) {
      counts->proposed += result.proposed;
      counts->accepted += result.accepted;
      counts->passes += result.decode_passes;
    }
  }
  seen.text.assign(generator.text().begin(), generator.text().end());
  seen.next_draw = generator.next_draw();
  return seen;
}

/// The known text of a run on one prompt.
inline std::vector<TokenId> known(const std::vector<TokenId>& prompt, const Seen& plain) {
  std::vector<TokenId> text = prompt;
  text.insert(text.end(), plain.ids[0].begin(), plain.ids[0].end());
  return text;
}

/// Ways to draw that meet every end of a text.
inline std::vector<GenerateOptions> ways() {
  GenerateOptions base;
  base.max_tokens = 40;
  base.on_logits = [](std::span<const float>) {};
  std::vector<GenerateOptions> all;
  for (const float temperature : {0.0F, 0.8F, 3.0F}) {
    GenerateOptions options = base;
    options.sampler.temperature = temperature;
    options.sampler.seed = 7;
    all.push_back(options);
    options.ignore_eos = true;
    options.sampler.repeat_penalty = 1.3F;
    options.sampler.repeat_last_n = 9;
    options.logprobs = 2;
    all.push_back(options);
    options.on_logits = nullptr;
    options.stop = {"the", "!", "zz"};
    all.push_back(options);
  }
  for (const std::size_t limit : {0, 1, 2, 5, 6}) {
    GenerateOptions options = base;
    options.sampler.temperature = 0;
    options.max_tokens = limit;
    all.push_back(options);
    options.on_logits = nullptr;
    all.push_back(options);
  }
  return all;
}

}  // namespace llm::test
