#include "tools/llmload/figures.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tools/common/stats.h"

namespace llm {
namespace {

Percentiles percentiles_of(std::span<const double> values) {
  return {percentile(values, 0.5), percentile(values, 0.95), percentile(values, 0.99)};
}

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

}  // namespace

LoadFigures figures_of(const LoadTrace& trace) {
  LoadFigures f;
  std::vector<double> queue;
  std::vector<double> first;
  std::vector<double> between;
  std::vector<double> whole;
  for (const RequestTrace& r : trace.requests) {
    ++f.requests;
    f.queue_full += r.admission == Admission::kQueueFull ? 1 : 0;
    f.too_long += r.admission == Admission::kTooLong ? 1 : 0;
    if (r.tokens.empty()) continue;
    ++f.finished;
    f.prompt_tokens += r.n_prompt;
    f.output_tokens += r.tokens.size();
    queue.push_back(to_seconds(r.started - r.arrival));
    first.push_back(to_seconds(r.tokens.front() - r.arrival));
    whole.push_back(to_seconds(r.tokens.back() - r.arrival));
    for (std::size_t i = 1; i < r.tokens.size(); ++i) {
      between.push_back(to_seconds(r.tokens[i] - r.tokens[i - 1]));
    }
  }
  f.queue = percentiles_of(queue);
  f.mean_queue =
      ratio(std::accumulate(queue.begin(), queue.end(), 0.0), static_cast<double>(queue.size()));
  f.first_token = percentiles_of(first);
  f.between = percentiles_of(between);
  f.whole = percentiles_of(whole);
  double tokens = 0;
  double sequences = 0;
  for (const StepTrace& step : trace.steps) {
    f.step_seconds += to_seconds(step.end - step.begin);
    tokens += static_cast<double>(step.shape.n_tokens);
    sequences += static_cast<double>(step.shape.n_sequences);
  }
  f.steps = trace.steps.size();
  f.tokens_per_step = ratio(tokens, static_cast<double>(f.steps));
  f.sequences_per_step = ratio(sequences, static_cast<double>(f.steps));
  if (f.steps > 0) {
    f.seconds = to_seconds(trace.steps.back().end - trace.requests.front().arrival);
  }
  f.output_per_second = ratio(static_cast<double>(f.output_tokens), f.seconds);
  f.tokens_per_second = ratio(static_cast<double>(f.prompt_tokens + f.output_tokens), f.seconds);
  f.preemptions = trace.preemptions;
  return f;
}

namespace {

std::vector<NamedFigure> named_figures_of(const LoadFigures& f) {
  std::vector<NamedFigure> all;
  const auto times = [&all](const std::string& name, const Percentiles& p, bool gated) {
    all.push_back({name + " p50 ms", p.p50 * 1e3, 3, gated});
    all.push_back({name + " p95 ms", p.p95 * 1e3, 3, gated});
    all.push_back({name + " p99 ms", p.p99 * 1e3, 3, false});
  };
  const auto count = [&all](const std::string& name, auto value) {
    all.push_back({name, static_cast<double>(value), 0, false});
  };
  times("queue", f.queue, false);
  all.push_back({"queue mean ms", f.mean_queue * 1e3, 3, false});
  times("ttft", f.first_token, true);
  times("tbt", f.between, true);
  times("request", f.whole, false);
  all.push_back({"output tokens/s", f.output_per_second, 1, true});
  all.push_back({"all tokens/s", f.tokens_per_second, 1, false});
  all.push_back({"seconds", f.seconds, 3, false});
  all.push_back({"seconds in steps", f.step_seconds, 3, false});
  count("steps", f.steps);
  all.push_back({"tokens per step", f.tokens_per_step, 2, false});
  all.push_back({"sequences per step", f.sequences_per_step, 2, false});
  count("preemptions", f.preemptions);
  count("requests", f.requests);
  count("finished", f.finished);
  count("refused, queue full", f.queue_full);
  count("refused, too long", f.too_long);
  return all;
}

}  // namespace

std::vector<NamedFigure> named_figures(std::span<const LoadFigures> runs) {
  std::vector<std::vector<NamedFigure>> all;
  for (const LoadFigures& run : runs) all.push_back(named_figures_of(run));
  std::vector<NamedFigure> spread = all.front();
  for (std::size_t i = 0; i < spread.size(); ++i) {
    std::vector<double> values;
    for (const auto& figures : all) values.push_back(figures[i].value);
    const auto [least, most] = std::ranges::minmax(values);
    spread[i].value = percentile(values, 0.5);
    spread[i].least = least;
    spread[i].most = most;
  }
  return spread;
}

std::vector<std::string> disagreements(const std::vector<NamedFigure>& real,
                                       const std::vector<NamedFigure>& simulated, double limit) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < real.size(); ++i) {
    // Written so that NaN disagrees.
    const bool agrees =
        std::abs(simulated[i].value - real[i].value) <= limit * std::abs(real[i].value);
    if (real[i].gated && !agrees) names.push_back(real[i].name);
  }
  return names;
}

}  // namespace llm
