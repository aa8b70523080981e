// Step costs and what they leave: shapes, the fit, residuals.

#include "tests/support/test.h"
#include "tools/llmload/cost_model.h"

namespace llm {

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
