#include "tools/llmload/workload.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "engine/sampler/sampler.h"
#include "tools/common/options.h"

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

/// The number from 1 on that `text` begins with, which is cut off; 0: none.
std::size_t cut_number(std::string_view& text) {
  std::size_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || value > LengthDistribution::kMostTokens) return 0;
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  return value;
}

bool cut(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::size_t LengthDistribution::Range::at(double share) const {
  return first + static_cast<std::size_t>(share * static_cast<double>(last - first + 1));
}

auto LengthDistribution::cut_range(std::string_view& text) -> std::optional<Range> {
  const std::size_t first = cut_number(text);
  const std::size_t last = cut(text, '-') ? cut_number(text) : first;
  return first > 0 && first <= last ? std::optional(Range{first, last}) : std::nullopt;
}

Result<LengthDistribution> LengthDistribution::parse(std::string_view text) {
  LengthDistribution result;
  std::size_t up_to = 0;
  do {
    const std::string_view whole = text.substr(0, text.find(','));
    const std::size_t weight = cut_number(text);
    const auto prompt = cut(text, ':') ? cut_range(text) : std::nullopt;
    const auto output = cut(text, ':') ? cut_range(text) : std::nullopt;
    if (weight == 0 || !prompt || !output || (!text.empty() && text[0] != ',')) {
      return usage_error("--lengths",
                         fmt::format("found \"{}\", need WEIGHT:PROMPT:OUTPUT, lengths "
                                     "as N or LOWEST-HIGHEST, all in 1..{}",
                                     whole.substr(0, 40), kMostTokens));
    }
    result.classes_.push_back({up_to += weight, *prompt, *output});
  } while (cut(text, ','));
  return result;
}

RequestLengths LengthDistribution::draw(double choice, double prompt, double output) const {
  const double wanted = choice * static_cast<double>(classes_.back().up_to);
  auto at = std::ranges::upper_bound(classes_, wanted, {},
                                     [](const Class& c) { return static_cast<double>(c.up_to); });
  if (at == classes_.end()) --at;  // rounding alone
  return {at->prompt.at(prompt), at->output.at(output)};
}

std::size_t LengthDistribution::longest_request() const {
  std::size_t most = 0;
  for (const Class& c : classes_) most = std::max(most, c.prompt.last + c.output.last);
  return most;
}

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
