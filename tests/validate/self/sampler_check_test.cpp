// The sampler's check passes, and notices a sampler that is wrong in one way.

#include "validate/self/sampler_check.h"

#include "tests/validate/check_results.h"

namespace llm::test {
namespace {

TEST_CASE("the sampler follows its definition", "[self][sampler]") {
  check_passed(check_sampler_rows({}));
}

// Filters, penalties and draws that are wrong are planted by tests/faults.
TEST_CASE("a wrong sampler is noticed and named", "[self][sampler]") {
  const SamplerFunctions right = sampler_functions();
  const auto fails = [&](const std::string& words, auto change) {
    SamplerFunctions functions = right;
    change(functions);
    const auto results = check_sampler_rows({}, functions);
    CAPTURE(words, named(results, words).detail);
    CHECK_FALSE(named(results, words).passed);
  };
  // A filter that changes its candidates when `applies`, however they come about.
  const auto changed = [&](auto applies, auto change) {
    return [=, &right](SamplerFunctions& f) {
      f.distribution = [=, &right](const Sampler& sampler, std::span<const float> logits,
                                   std::span<const TokenId> past) {
        auto candidates = right.distribution(sampler, logits, past);
        if (candidates.ok() && applies(sampler.options())) change(*candidates);
        return candidates;
      };
    };
  };
  fails("greedy", changed([](const SamplerOptions& o) { return o.temperature == 0; },
                          [](std::vector<Candidate>& candidates) { ++candidates[0].id; }));

  const auto with_options = [&](auto change) {
    return [=, &right](SamplerFunctions& f) {
      f.distribution = [=, &right](const Sampler& sampler, std::span<const float> logits,
                                   std::span<const TokenId> past) {
        SamplerOptions options = sampler.options();
        change(options);
        return right.distribution(Sampler(options), logits, past);
      };
    };
  };
  fails("temperature", with_options([](SamplerOptions& o) { o.temperature *= 1.0001F; }));
  fails("both orders", with_options([](SamplerOptions& o) { o.order = SamplerOrder::kHf; }));
  fails("refused", [&](SamplerFunctions& f) {
    f.sample = [](const Sampler&, std::span<const float>, std::span<const TokenId>,
                  std::uint64_t) -> Result<TokenId> { return TokenId{0}; };
  });
  fails("log probabilities", [&](SamplerFunctions& f) {
    f.logprobs = [&](std::span<const float> logits, TokenId chosen, std::size_t n_top) {
      Logprobs made = right.logprobs(logits, chosen, n_top);
      if (made.top.size() > 1) std::swap(made.top[0], made.top[1]);
      return made;
    };
  });
}

}  // namespace
}  // namespace llm::test
