// What llmload is made of: workloads, the simulation, step costs. Nothing here looks at a clock.

#include "tests/support/test.h"
#include "tools/llmload/cost_model.h"
#include "tools/llmload/figures.h"
#include "tools/llmload/load_run.h"
#include "tools/llmload/workload.h"

namespace llm {
namespace {

CostModel costs_of(double step, double token) {
  CostModel::Features seconds = {};
  seconds[0] = step;
  seconds[2] = seconds[3] = token;  // up to 16 tokens, and from there on
  return CostModel(seconds);
}

LoadTrace simulate(const std::vector<LoadRequest>& workload, const SchedulerOptions& options,
                   const CostModel& costs) {
  return test::require_ok(simulate_load(workload, options, costs));
}

LengthDistribution lengths_of(std::string_view text = LengthDistribution::kUsual) {
  return test::require_ok(LengthDistribution::parse(text));
}

const SchedulerOptions kOptions{
    .step_tokens = 64, .parallel = 8, .queue = 1000, .context = 416, .kv_pages = 6};

}  // namespace

TEST_CASE("a workload depends on its seed alone", "[llmload]") {
  const auto lengths = lengths_of();
  WorkloadOptions options{.rate = 20, .requests = 500, .seed = 3};
  const auto workload = make_workload(options, lengths);
  REQUIRE(workload == make_workload(options, lengths));
  options.seed = 4;
  REQUIRE(workload != make_workload(options, lengths));
  options.seed = 3;
  options.rate = 40;
  const auto faster = make_workload(options, lengths);
  for (std::size_t i = 0; i < workload.size(); ++i) {
    REQUIRE(workload[i].n_prompt == faster[i].n_prompt);
    REQUIRE(workload[i].n_output == faster[i].n_output);
    REQUIRE(to_seconds(workload[i].arrival) ==
            Approx(2 * to_seconds(faster[i].arrival)).margin(1e-8));
  }
  REQUIRE(prompt_of(3, 5, 50, 100) == prompt_of(3, 5, 50, 100));
  REQUIRE(prompt_of(3, 5, 50, 100) != prompt_of(3, 6, 50, 100));
  const auto ids = prompt_of(3, 5, 2000, 100);
  REQUIRE(*std::ranges::min_element(ids) == 0);
  REQUIRE(*std::ranges::max_element(ids) == 99);
}

TEST_CASE("training loads are of the same kind, and none is the one that is compared",
          "[llmload]") {
  const auto lengths = lengths_of();
  const WorkloadOptions compared{.arrivals = Arrivals::kBurst,
                                 .rate = 20,
                                 .burst = 3,
                                 .requests = 50,
                                 .seconds = 1,
                                 .seed = 3};
  WorkloadOptions same = compared;
  same.seconds.reset();
  std::vector<std::vector<LoadRequest>> loads = {make_workload(same, lengths)};
  for (std::size_t round = 0; round < 5; ++round) {
    const WorkloadOptions options = training_load(compared, 50, round);
    REQUIRE(options.arrivals == compared.arrivals);
    REQUIRE(options.rate == compared.rate);
    REQUIRE(options.burst == compared.burst);
    const auto load = make_workload(options, lengths);
    REQUIRE(load.size() == 50);
    for (const auto& other : loads) REQUIRE(load != other);
    loads.push_back(load);
  }
}

TEST_CASE("arrivals have their rate and their shape", "[llmload]") {
  const auto lengths = lengths_of();
  const std::size_t n = 20000;
  WorkloadOptions options{.rate = 50, .burst = 10, .requests = n, .seed = 1};
  const auto poisson = make_workload(options, lengths);
  // The sum of n exponential gaps has a standard deviation of sqrt(n) / rate: 5 of them.
  REQUIRE(std::abs(to_seconds(poisson.back().arrival) - n / 50.0) < 5 * std::sqrt(n) / 50);
  std::size_t long_gaps = 0;
  for (std::size_t i = 1; i < n; ++i) {
    REQUIRE(poisson[i].arrival >= poisson[i - 1].arrival);
    long_gaps += to_seconds(poisson[i].arrival - poisson[i - 1].arrival) > 1 / 50.0 ? 1 : 0;
  }
  const double share = std::exp(-1);
  REQUIRE(std::abs(static_cast<double>(long_gaps) - share * n) <
          5 * std::sqrt(n * share * (1 - share)));

  options.arrivals = Arrivals::kBurst;
  const auto burst = make_workload(options, lengths);
  REQUIRE(std::abs(to_seconds(burst.back().arrival) - n / 50.0) < 5 * std::sqrt(10.0 * n) / 50);
  for (std::size_t i = 0; i < n; ++i) REQUIRE(burst[i].arrival == burst[i - i % 10].arrival);
  REQUIRE(burst[10].arrival > burst[9].arrival);

  options.seconds = to_seconds(burst[100].arrival) + 1e-9;
  REQUIRE(make_workload(options, lengths).size() == 110);
}

TEST_CASE("lengths are drawn by weight, uniform in their ranges", "[llmload]") {
  const auto lengths = lengths_of("3:1-4:7,1:50:2-3");
  REQUIRE(lengths.draw(0, 0, 0) == RequestLengths{1, 7});
  REQUIRE(lengths.draw(0.749, 0.99, 0.99) == RequestLengths{4, 7});
  REQUIRE(lengths.draw(0.75, 0, 0.49) == RequestLengths{50, 2});
  REQUIRE(lengths.draw(0.9999, 0, 0.5) == RequestLengths{50, 3});
  REQUIRE(lengths.longest_request() == 53);
}

TEST_CASE("invalid lengths are rejected with their class", "[llmload][bad_input]") {
  for (const std::string bad :
       {"", "x", "1", "1:2", "1:2:", "0:1:1", "1:0:1", "1:2-1:1", "1:1:1-", "1:1:1 ", "1:1:1:1",
        "1:1:1048577", "1:1:1.5", "-1:1:1", "1:99999999999999999999:1"}) {
    test::must_fail(LengthDistribution::parse("1:1:1," + bad), ErrorCode::kUsage,
                    {"--lengths: found \"" + bad + "\", need WEIGHT:PROMPT:OUTPUT"});
  }
}

TEST_CASE("three requests by hand", "[llmload]") {
  // 1 s a step and nothing else; two may run.
  using std::chrono::seconds;
  const std::vector<LoadRequest> workload = {
      {seconds(2), 10, 3}, {seconds(3), 5, 1}, {seconds(3), 5, 2}};
  const SchedulerOptions options{
      .step_tokens = 8, .parallel = 2, .queue = 9, .context = 20, .kv_pages = 2};
  const LoadTrace trace = simulate(workload, options, costs_of(1, 0));
  // 2-3: 8 tokens of the first. 3-4: its other 2, 5 of the second. 4-5: decode; the third begins.
  using Times = std::vector<Nanoseconds>;
  REQUIRE(trace.requests[0].tokens == Times{seconds(4), seconds(5), seconds(6)});
  REQUIRE(trace.requests[1].tokens == Times{seconds(4)});
  REQUIRE(trace.requests[2].tokens == Times{seconds(5), seconds(6)});
  REQUIRE(trace.requests[0].started == seconds(2));
  REQUIRE(trace.requests[1].started == seconds(3));
  REQUIRE(trace.requests[2].started == seconds(4));
  const LoadFigures figures = figures_of(trace);
  const auto is = [&](const char* name, double expected) {
    CAPTURE(name);
    REQUIRE(value_of(figures, name) == Approx(expected));
  };
  is("queue p50 ms", 0);
  is("queue mean ms", 1000.0 / 3);
  is("ttft p50 ms", 2000);
  is("tbt p99 ms", 1000);
  is("request p50 ms", 3000);
  is("seconds", 4);
  is("output tokens/s", 1.5);
  is("all tokens/s", 6.5);
  is("steps", 4);
  is("tokens per step", 23 / 4.0);
  is("sequences per step", 7 / 4.0);
}

TEST_CASE("one server of constant time waits as the theory of queues says", "[llmload]") {
  // M/D/1 (Pollaczek, Khinchine): the mean wait is rho * D / (2 (1 - rho)).
  const auto lengths = lengths_of("1:1:1");
  const SchedulerOptions options{
      .step_tokens = 1, .parallel = 1, .queue = 1000000, .context = 1, .kv_pages = 1};
  const double d = 0.01;
  const std::size_t n = 200000;
  for (const double rho : {0.3, 0.6, 0.8}) {
    const auto workload = make_workload({.rate = rho / d, .requests = n, .seed = 7}, lengths);
    const LoadTrace trace = simulate(workload, options, costs_of(d, 0));
    const double expected = rho * d / (2 * (1 - rho));
    // Waits are correlated over about 1 / (1 - rho)^2 requests; their standard deviation is near
    // their mean. Five standard errors.
    const double error = 5 * expected * std::sqrt(2 / (1 - rho) / (1 - rho) / n);
    for (const RequestTrace& request : trace.requests) {
      if (request.started < request.arrival) FAIL("a request began before it came");
    }
    const double wait = value_of(figures_of(trace), "queue mean ms") * 1e-3;
    CAPTURE(rho, expected, wait, error);
    REQUIRE(std::abs(wait - expected) < error);
    REQUIRE(error < 0.1 * expected);
  }
}

TEST_CASE("a simulation is the same each time, and its replay too", "[llmload]") {
  const auto workload = make_workload({.rate = 30, .requests = 300, .seed = 2}, lengths_of());
  const CostModel costs = costs_of(1e-3, 1e-4);
  const LoadTrace trace = simulate(workload, kOptions, costs);
  REQUIRE(trace.preemptions > 0);
  REQUIRE(simulate(workload, kOptions, costs) == trace);
  // A machine that wakes late and whose steps take what they want: its decisions are replayed.
  class Odd final : public LoadBackend {
   public:
    Nanoseconds wait_until(Nanoseconds time) override {
      return time + Nanoseconds(random_() % 300000);
    }
    Result<Nanoseconds> run(const Step&, const StepShape&, Nanoseconds now) override {
      return now + Nanoseconds(random_() % 20000000);
    }

   private:
    std::mt19937 random_{5};
  };
  Odd odd;
  auto measured = test::require_ok(run_load(workload, kOptions, odd));
  auto replay = test::require_ok(replay_load(workload, kOptions, measured));
  REQUIRE(replay == measured);
  // With another policy it is another run.
  SchedulerOptions other = kOptions;
  other.step_tokens = 65;
  REQUIRE_FALSE(*replay_load(workload, other, measured) == measured);
}

TEST_CASE("a bounded queue refuses, and counts", "[llmload]") {
  const auto workload = make_workload(
      {.arrivals = Arrivals::kBurst, .rate = 1000, .burst = 50, .requests = 50, .seed = 1},
      lengths_of("1:9:2,1:99:2"));
  const SchedulerOptions options{
      .step_tokens = 8, .parallel = 2, .queue = 10, .context = 20, .kv_pages = 2};
  const LoadFigures figures = figures_of(simulate(workload, options, costs_of(1e-3, 0)));
  const double too_long = value_of(figures, "refused, too long");
  REQUIRE(value_of(figures, "requests") == 50);
  REQUIRE(value_of(figures, "finished") == 10);
  REQUIRE(too_long > 5);
  REQUIRE(value_of(figures, "refused, queue full") == 40 - too_long);
}

TEST_CASE("a simulation draws its residuals by seed, and they take their time", "[llmload]") {
  const auto workload = make_workload({.rate = 30, .requests = 300, .seed = 2}, lengths_of());
  const CostModel costs = costs_of(1e-3, 0);
  std::vector<StepSample> samples;
  for (std::size_t i = 0; i < 64; ++i) samples.push_back({{}, i % 2 == 0 ? 0.5e-3 : 1.5e-3});
  const Residuals residuals = Residuals::of(costs, samples);
  const auto with = [&](std::uint64_t seed) {
    return test::require_ok(simulate_load(workload, kOptions, costs, residuals, seed));
  };
  const LoadTrace trace = with(7);
  REQUIRE(trace == with(7));
  REQUIRE_FALSE(trace == with(8));
  double ratio = 0;
  for (const StepTrace& step : trace.steps) ratio += to_seconds(step.end - step.begin) / 1e-3;
  const auto n = static_cast<double>(trace.steps.size());
  // Factors of 0.5 and 1.5 have a standard deviation of 0.5: 5 standard errors.
  REQUIRE(std::abs(ratio / n - 1) < 5 * 0.5 / std::sqrt(n));
  REQUIRE(*replay_load(workload, kOptions, trace) == trace);
}

TEST_CASE("a step after a wait is told from others", "[llmload]") {
  using std::chrono::seconds;
  const std::vector<LoadRequest> workload = {{seconds(2), 1, 2}, {seconds(9), 1, 1}};
  CostModel::Features cost = {};
  cost[0] = 1;
  cost[8] = 3;
  const LoadTrace trace = simulate(workload, kOptions, CostModel(cost));
  using Times = std::vector<Nanoseconds>;
  REQUIRE(trace.requests[0].tokens == Times{seconds(6), seconds(7)});
  REQUIRE(trace.requests[1].tokens == Times{seconds(13)});
}

TEST_CASE("a figure of several runs is their median, with the least and the most", "[llmload]") {
  std::vector<LoadFigures> runs;
  for (const double value : {4, 1, 2}) runs.push_back({{"tbt p95 ms", value, 3, true}});
  const LoadFigure of_all = medians(runs).at(0);
  REQUIRE(of_all.value == 2);
  REQUIRE(of_all.least == 1);
  REQUIRE(of_all.most == 4);
}

TEST_CASE("figures agree within the limit, and NaN never does", "[llmload]") {
  const LoadFigures real = {{"a", 100, 0, true}, {"b", 100, 0, false}};
  const auto differing = [&](double a, double b) {
    return disagreements(real, {{"a", a, 0, true}, {"b", b, 0, false}}, 0.15);
  };
  REQUIRE(differing(114, 500).empty());
  REQUIRE(differing(86, 0).empty());
  REQUIRE(differing(116, 100) == std::vector<std::string>{"a"});
  REQUIRE(differing(84, 100) == std::vector<std::string>{"a"});
  REQUIRE(differing(std::nan(""), 100) == std::vector<std::string>{"a"});
}

TEST_CASE("the shape of a step", "[llmload]") {
  StepShape shape;
  shape.add({1, 10, 1, true});   // attends to 11
  shape.add({2, 4, 10, false});  // to 5, ..., 14; read in groups of 8 and 2
  REQUIRE(shape == StepShape{.n_tokens = 11,
                             .n_sequences = 2,
                             .n_attended = 11 + 95,
                             .n_read = 11 + 12 + 14,
                             .n_logits = 1});
}

TEST_CASE("costs that made the samples are found again, outliers or not", "[llmload]") {
  const CostModel truth({50e-6, 30e-6, 20e-6, 25e-6, 10e-6, 0.02e-6, 0.4e-6, 12e-6, 70e-6});
  std::mt19937 random(3);
  std::vector<StepSample> samples;
  for (std::size_t i = 0; i < 200; ++i) {
    StepShape shape;
    const std::size_t n_decoding = random() % 16;
    for (std::size_t k = 0; k < n_decoding; ++k) shape.add({k, random() % 400, 1, true});
    if (n_decoding == 0 || random() % 2 == 0)
      shape.add({99, random() % 200, 1 + random() % 200, random() % 2 == 0});
    shape.after_idle = random() % 4 == 0;
    samples.push_back({shape, truth.predict(shape)});
  }
  const auto exact = test::require_ok(CostModel::fit(samples));
  REQUIRE(quality_of(exact, samples).median_error < 1e-5);
  REQUIRE(quality_of(exact, samples).total_ratio == Approx(1));
  REQUIRE(exact.seconds()[8] == Approx(70e-6));
  // One in five took twice as long, which without Huber's weights is 6 % in all; the others 2 %
  // more or less.
  auto disturbed = samples;
  for (std::size_t i = 0; i < disturbed.size(); ++i) {
    disturbed[i].seconds *= i % 5 == 0 ? 2 : 0.98 + 0.00004 * static_cast<int>(random() % 1000);
  }
  const auto robust = test::require_ok(CostModel::fit(disturbed));
  const FitQuality quality = quality_of(robust, samples);
  CAPTURE(quality.median_error, quality.total_ratio);
  REQUIRE(quality.median_error < 0.03);
  REQUIRE(quality.total_ratio == Approx(1).margin(0.03));
  for (const double seconds : robust.seconds()) REQUIRE(seconds >= 0);
  REQUIRE(CostModel::fit(std::span(samples).first(8)).error().code == ErrorCode::kResource);
}

TEST_CASE("residuals keep the mean, in each size of step, and have the spread of the samples",
          "[llmload]") {
  // Twice in ten a small step takes five times as long, a large one 1.5 times; the model knows
  // neither, and is 10 % off besides.
  const CostModel model({1e-4, 0, 1e-5, 1e-5, 0, 1e-9, 0, 0, 0});
  std::mt19937 random(4);
  std::vector<StepSample> samples;
  for (std::size_t i = 0; i < 800; ++i) {
    const StepShape shape{.n_tokens = i % 2 == 0 ? 1 + random() % 4 : 200 + random() % 50,
                          .n_attended = i};  // no two are predicted to take as long
    const double slow = shape.n_tokens < 100 ? 5 : 1.5;
    samples.push_back({shape, 1.1 * model.predict(shape) * (random() % 10 < 2 ? slow : 1)});
  }
  const Residuals residuals = Residuals::of(model, samples);
  constexpr std::size_t kDraws = 200;  // each factor of a group once
  for (const bool small : {true, false}) {
    double measured = 0;
    double drawn = 0;
    std::vector<double> ratios;
    for (const StepSample& s : samples) {
      if ((s.shape.n_tokens < 100) != small) continue;
      measured += s.seconds;
      for (std::size_t k = 0; k < kDraws; ++k) {
        ratios.push_back(
            residuals.at(model.predict(s.shape), (static_cast<double>(k) + 0.5) / kDraws));
        drawn += model.predict(s.shape) * ratios.back() / kDraws;
      }
    }
    CAPTURE(small);
    REQUIRE(drawn == Approx(measured).epsilon(1e-9));
    std::ranges::sort(ratios);
    REQUIRE(ratios[ratios.size() / 2] == Approx(1.1).epsilon(0.02));
    REQUIRE(ratios[ratios.size() * 9 / 10] == Approx(small ? 5.5 : 1.65).epsilon(0.02));
  }
  REQUIRE(Residuals().at(1e-3, 0.9) == 1);
  REQUIRE(residuals.at(1e9, 0.999) > 1);  // beyond all samples: as the largest ones
}

}  // namespace llm
