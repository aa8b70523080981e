#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "tokenizer/vocab_spec.h"
#include "tools/llmload/lengths.h"

namespace llm {

/// Of a run, from its start; whole numbers, so that a run can be repeated exactly.
using Nanoseconds = std::chrono::nanoseconds;

inline double to_seconds(Nanoseconds time) { return std::chrono::duration<double>(time).count(); }
inline Nanoseconds from_seconds(double seconds) {
  return std::chrono::round<Nanoseconds>(std::chrono::duration<double>(seconds));
}

enum class Arrivals {
  kPoisson,  ///< one by one: gaps are exponential with mean 1 / rate
  kBurst,    ///< `burst` at one moment; gaps between bursts are exponential with mean burst / rate
};

inline constexpr std::size_t kMostRequests = 1000000;

struct WorkloadOptions {
  Arrivals arrivals = Arrivals::kPoisson;
  double rate = 1;        ///< requests a second in the long run, > 0
  std::size_t burst = 8;  ///< requests of a burst, 1 or more
  std::size_t requests = 100;
  std::optional<double> seconds =
      std::nullopt;  ///< those that arrive so soon, instead of `requests`
  std::uint64_t seed = 0;
};

/// A request of a load: when it comes, and how long it is. Its text is prompt_of().
struct LoadRequest {
  Nanoseconds arrival;
  std::size_t n_prompt;
  std::size_t n_output;  ///< generated whatever the model says; end of text is a token like others

  bool operator==(const LoadRequest&) const = default;
};

/// Whether there are few enough requests, and little enough time for them.
/// Errors: kUsage naming the option with what was found and the limit.
Status check_workload(const WorkloadOptions& options);

/// By time of arrival; the same for the same options. Lengths of request i do not depend on rate
/// and arrivals. @pre the options are in the ranges noted there, and pass check_workload()
std::vector<LoadRequest> make_workload(const WorkloadOptions& options,
                                       const LengthDistribution& lengths);

/// A load like `compared` of `requests` requests, with seeds of its own in each round.
WorkloadOptions training_load(WorkloadOptions compared, std::size_t requests, std::size_t round);

/// Random token ids of request `index`.
std::vector<TokenId> prompt_of(std::uint64_t seed, std::size_t index, std::size_t n_tokens,
                               std::size_t n_vocab);

}  // namespace llm
