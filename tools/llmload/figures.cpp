#include "tools/llmload/figures.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tools/common/stats.h"

namespace llm {
namespace {

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

double mean(const std::vector<double>& values) {
  return ratio(std::accumulate(values.begin(), values.end(), 0.0),
               static_cast<double>(values.size()));
}

}  // namespace

LoadFigures figures_of(const LoadTrace& trace) {
  std::vector<double> queue, first, between, whole;
  double queue_full = 0, too_long = 0, prompt_tokens = 0, output_tokens = 0;
  for (const RequestTrace& r : trace.requests) {
    queue_full += r.admission == Admission::kQueueFull ? 1 : 0;
    too_long += r.admission == Admission::kTooLong ? 1 : 0;
    if (r.tokens.empty()) continue;
    prompt_tokens += static_cast<double>(r.n_prompt);
    output_tokens += static_cast<double>(r.tokens.size());
    queue.push_back(to_seconds(r.started - r.arrival));
    first.push_back(to_seconds(r.tokens.front() - r.arrival));
    whole.push_back(to_seconds(r.tokens.back() - r.arrival));
    for (std::size_t i = 1; i < r.tokens.size(); ++i) {
      between.push_back(to_seconds(r.tokens[i] - r.tokens[i - 1]));
    }
  }
  double step_seconds = 0, tokens = 0, sequences = 0;
  for (const StepTrace& step : trace.steps) {
    step_seconds += to_seconds(step.end - step.begin);
    tokens += static_cast<double>(step.shape.n_tokens);
    sequences += static_cast<double>(step.shape.n_sequences);
  }
  const auto steps = static_cast<double>(trace.steps.size());
  const double seconds =
      steps > 0 ? to_seconds(trace.steps.back().end - trace.requests.front().arrival) : 0;

  LoadFigures all;
  const auto times = [&all](const std::string& name, const std::vector<double>& values,
                            bool gated) {
    all.push_back({name + " p50 ms", percentile(values, 0.5) * 1e3, 3, gated});
    all.push_back({name + " p95 ms", percentile(values, 0.95) * 1e3, 3, gated});
    all.push_back({name + " p99 ms", percentile(values, 0.99) * 1e3, 3, false});
  };
  times("queue", queue, false);
  all.push_back({"queue mean ms", mean(queue) * 1e3, 3, false});
  times("ttft", first, true);
  times("tbt", between, true);
  times("request", whole, false);
  all.push_back({"output tokens/s", ratio(output_tokens, seconds), 1, true});
  all.push_back({"all tokens/s", ratio(prompt_tokens + output_tokens, seconds), 1, false});
  all.push_back({"seconds", seconds, 3, false});
  all.push_back({"seconds in steps", step_seconds, 3, false});
  all.push_back({"steps", steps, 0, false});
  all.push_back({"tokens per step", ratio(tokens, steps), 2, false});
  all.push_back({"sequences per step", ratio(sequences, steps), 2, false});
  all.push_back({"preemptions", static_cast<double>(trace.preemptions), 0, false});
  all.push_back({"requests", static_cast<double>(trace.requests.size()), 0, false});
  all.push_back({"finished", static_cast<double>(queue.size()), 0, false});
  all.push_back({"refused, queue full", queue_full, 0, false});
  all.push_back({"refused, too long", too_long, 0, false});
  return all;
}

LoadFigures medians(std::span<const LoadFigures> runs) {
  if (runs.empty()) return {};
  LoadFigures all = runs.front();
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::vector<double> values;
    for (const LoadFigures& run : runs) values.push_back(run[i].value);
    const auto [least, most] = std::ranges::minmax(values);
    all[i].value = percentile(values, 0.5);
    all[i].least = least;
    all[i].most = most;
  }
  return all;
}

double value_of(const LoadFigures& figures, std::string_view name) {
  return std::ranges::find(figures, name, &LoadFigure::name)->value;
}

std::vector<std::string> disagreements(const LoadFigures& real, const LoadFigures& simulated,
                                       double limit) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(real.size(), simulated.size()); ++i) {
    // Written so that NaN disagrees.
    const bool agrees =
        std::abs(simulated[i].value - real[i].value) <= limit * std::abs(real[i].value);
    if (real[i].gated && !agrees) names.push_back(real[i].name);
  }
  return names;
}

}  // namespace llm
