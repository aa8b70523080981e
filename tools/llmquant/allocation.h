#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/gguf/gguf_file.h"
#include "tools/llmquant/plan.h"

namespace llm {

/// A type that a tensor could have: what it costs, and the noise of the tensor's products relative
/// to their outputs (ConversionError::noise()).
struct TypeChoice {
  WeightType type;
  std::uint64_t bytes;
  double noise;
};

/// The choices of a tensor of the plan.
struct TensorChoices {
  std::size_t tensor;               ///< its index in the plan
  double weight;                    ///< of its noise: the number of weights, of the output more
  std::vector<TypeChoice> choices;  ///< in ascending order of bytes and descending of noise
  std::size_t chosen = 0;           ///< index in choices
};

/// The noise of the free tensors of a plan in every type of `types` that fits their rows (without
/// importances none that requires them), measured on at most 128 chunks of 256 weights, spread
/// evenly over the tensor. A choice is left out if another one or a mix of two others is no worse
/// in both respects, so that each next one gains less for a byte than the one before.
/// @param progress  tensors that are done, of how many; false stops
/// Errors: kNonFinite for a weight that is none.
Result<std::vector<TensorChoices>> measure_choices(
    const GgufFile& gguf, std::span<const TensorPlan> plan, std::span<const WeightType> types,
    int n_threads, const std::function<bool(std::size_t, std::size_t)>& progress);

/// Begins with the first choice of every tensor, and takes the next one where it lowers the noise
/// most for a byte, the first of equal ones, as long as `goes_on(bytes, noise)` after the step;
/// both are sums over the tensors, of noise times its weight. As gains of a tensor fall, this gives
/// the least noise for the bytes it ends with.
void choose_types(std::span<TensorChoices> tensors,
                  const std::function<bool(std::uint64_t, double)>& goes_on);

/// The size that a text asks for, such as "4.5GiB", "900MB" or, for each of `n_weights`, "4.5bpw".
/// Errors: kUsage.
Result<std::uint64_t> parse_size(const std::string& text, std::uint64_t n_weights);

/// A line for each choice of each tensor, the one that is taken marked with an asterisk.
std::string choice_table(std::span<const TensorPlan> plan, std::span<const TensorChoices> tensors);

}  // namespace llm
