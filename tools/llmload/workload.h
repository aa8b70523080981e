#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/vocab_spec.h"

namespace llm {

struct RequestLengths {
  std::size_t n_prompt;
  std::size_t n_output;

  bool operator==(const RequestLengths&) const = default;
};

/// How long prompts and outputs are: weighted classes, in each of which both lengths are uniform in
/// a range. As text, WEIGHT:PROMPT:OUTPUT joined by commas; a range is LOWEST-HIGHEST, or one
/// length.
class LengthDistribution {
 public:
  static constexpr std::size_t kMostTokens = std::size_t{1} << 20;  ///< of a length
  /// Short, middle and long requests.
  static constexpr const char* kUsual = "5:8-48:16-64,3:64-192:32-96,1:256-384:8-32";

  /// Errors: kUsage with the class that is none.
  static Result<LengthDistribution> parse(std::string_view text);

  /// @param choice, prompt, output  uniform in [0, 1)
  RequestLengths draw(double choice, double prompt, double output) const;

  /// Tokens of the longest request, prompt and output together.
  std::size_t longest_request() const;

 private:
  struct Range {
    std::size_t first;
    std::size_t last;
    std::size_t at(double share) const;
  };
  struct Class {
    std::size_t up_to;  ///< sum of the weights so far
    Range prompt;
    Range output;
  };
  static std::optional<Range> cut_range(std::string_view& text);

  std::vector<Class> classes_;
};

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
