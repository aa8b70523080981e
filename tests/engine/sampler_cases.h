#pragma once

#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/sampler/sampler.h"

namespace llm {

/// Rows of logits with the tokens before each.
struct SamplerRow {
  std::string name;
  std::vector<float> logits;
  std::vector<TokenId> past;
};

/// Equal logits, ties, one that dominates, flat, extreme, with -Inf; ever the same.
std::vector<SamplerRow> generated_sampler_rows();

/// Options of every kind for rows of n logits.
SamplerOptions drawn_options(std::size_t n, std::mt19937& random);

/// Draws `n_draws` tokens from one row by the plain loops, which sort it once, and by the sampler.
/// @return how many differ
std::size_t differing_draws(std::span<const float> row, std::span<const TokenId> past,
                            const SamplerOptions& options, std::size_t n_draws);

/// Where Sampler leaves the plain loops (naive_sampler.h) on the generated rows: a line for each
/// kind of options, of the first row on which a token or a bit of its probability differs. Top-k
/// takes every k, top-p and min-p every value at which they take in a token, and both floats beside
/// it, so that a filter that is one token off shows.
std::vector<std::string> sampler_differences();

}  // namespace llm
