#include "tools/llmload/workload.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "engine/sampler/sampler.h"

namespace llm {
namespace {

// Sequences of uniform_draw() for what is random here; request i's prompt has kPrompts + i.
constexpr std::uint64_t kGaps = 0;
constexpr std::uint64_t kClasses = 1;
constexpr std::uint64_t kPromptLengths = 2;
constexpr std::uint64_t kOutputLengths = 3;
constexpr std::uint64_t kPrompts = 4;

// A gap is at most 37 times its mean, and nanoseconds end after 9e9 seconds.
constexpr double kMostSeconds = 1e7;

}  // namespace

Status check_workload(const WorkloadOptions& options) {
  const auto too_much = [](const char* option, double found, double most, const char* what) {
    return Error{ErrorCode::kUsage, option,
                 fmt::format("found {:g} {}, need at most {:g}", found, what, most)};
  };
  if (options.seconds && *options.seconds * options.rate > kMostRequests)
    return too_much("--duration", *options.seconds * options.rate, kMostRequests, "requests");
  const std::size_t together = options.arrivals == Arrivals::kBurst ? options.burst : 1;
  const std::size_t n = options.seconds ? together : std::max(together, options.requests);
  const double seconds = static_cast<double>(n) / options.rate;
  if (seconds > kMostSeconds) return too_much("--rate", seconds, kMostSeconds, "seconds");
  return Ok{};
}

std::vector<LoadRequest> make_workload(const WorkloadOptions& options,
                                       const LengthDistribution& lengths) {
  const std::size_t together = options.arrivals == Arrivals::kBurst ? options.burst : 1;
  const double mean_gap = static_cast<double>(together) / options.rate;
  std::vector<LoadRequest> requests;
  double now = 0;
  for (std::size_t i = 0; options.seconds || i < options.requests; ++i) {
    if (i % together == 0) now -= mean_gap * std::log1p(-uniform_draw(options.seed, kGaps, i));
    if (options.seconds && now >= *options.seconds) break;
    const RequestLengths drawn = lengths.draw(uniform_draw(options.seed, kClasses, i),
                                              uniform_draw(options.seed, kPromptLengths, i),
                                              uniform_draw(options.seed, kOutputLengths, i));
    requests.push_back({from_seconds(now), drawn.n_prompt, drawn.n_output});
  }
  return requests;
}

WorkloadOptions training_load(WorkloadOptions compared, std::size_t requests, std::size_t round) {
  compared.seconds.reset();
  compared.requests = requests;
  // An odd number times 1, 2, ... is never 0, nor twice the same.
  compared.seed ^= (round + 1) * 0x9E3779B97F4A7C15U;
  return compared;
}

std::vector<TokenId> prompt_of(std::uint64_t seed, std::size_t index, std::size_t n_tokens,
                               std::size_t n_vocab) {
  std::vector<TokenId> ids(n_tokens);
  for (std::size_t i = 0; i < n_tokens; ++i) {
    ids[i] = static_cast<TokenId>(uniform_draw(seed, kPrompts + index, i) *
                                  static_cast<double>(n_vocab));
  }
  return ids;
}

}  // namespace llm
