#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/sampler/sampler.h"
#include "validate/report/report.h"

namespace llm {

/// What is checked; a test puts wrong ones in.
struct SamplerFunctions {
  std::function<Result<std::vector<Candidate>>(const Sampler&, std::span<const float> logits,
                                               std::span<const TokenId> past)>
      distribution;
  std::function<Result<TokenId>(const Sampler&, std::span<const float> logits,
                                std::span<const TokenId> past, std::uint64_t position)>
      sample;
  std::function<Logprobs(std::span<const float> logits, TokenId chosen, std::size_t n_top)>
      logprobs;
};
SamplerFunctions sampler_functions();

/// Rows of logits with the tokens before each.
struct SamplerRow {
  std::string name;
  std::vector<float> logits;
  std::vector<TokenId> past;
};

/// Equal logits, ties, one that dominates, flat, extreme, with -Inf; ever the same.
std::vector<SamplerRow> generated_sampler_rows();

/// Compares the sampler with the steps of docs/sampling.md, on generated rows and on `more`.
/// Weights and sums are f64; the sampler's own bits are compared by a test
/// (sampler_order_test.cpp). Each step is checked alone, then all together: the tokens that may be
/// drawn, and their probabilities. Top-k takes every k, top-p and min-p a limit between any two
/// tokens, so that a filter one token off shows on every run. Then draws over seeds, sequences and
/// positions; what must be refused; log probabilities. A failed check names row and options. Cost:
/// a second, and about 80 sorts of each long row of `more`.
std::vector<CheckResult> check_sampler_rows(
    std::span<const SamplerRow> more, const SamplerFunctions& functions = sampler_functions());

/// check_sampler_rows() with rows of the model's own logits. Errors: those of Session.
Result<std::vector<CheckResult>> check_sampler(const std::shared_ptr<const Model>& model);

}  // namespace llm
