#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "validate/self/sampler_check.h"

namespace llm {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

}  // namespace

std::vector<SamplerRow> generated_sampler_rows() {
  std::mt19937 random(1);
  const auto drawn = [&random](std::size_t n, auto value) {
    std::vector<float> logits(n);
    for (float& logit : logits)
      logit = value(static_cast<float>(static_cast<double>(random()) / 0x1p32));
    return logits;
  };
  const auto flat = [](float u) { return u; };
  const auto wide = [](float u) { return 20 * u - 12; };
  const auto ties = [](float u) { return std::floor(6 * u) / 2 - 1; };
  std::vector<SamplerRow> rows = {
      {"one logit", {-3.5F}, {}},
      {"two equal logits", {1, 1}, {}},
      {"8 equal logits", std::vector<float>(8, 0.25F), {}},
      {"33 equal logits", std::vector<float>(33, -7), {}},
      {"halves", {0, -0.6931472F, -1.3862944F, -2.0794415F, -2.7725887F}, {}},
      {"17 flat logits", drawn(17, flat), {}},
      {"40 wide logits", drawn(40, wide), {}},
      {"64 logits of 6 values", drawn(64, ties), {}},
      {"100 wide logits", drawn(100, wide), {}},
      {"all negative", drawn(21, [](float u) { return -50 - 4 * u; }), {}},
      {"extreme values", {1e30F, -1e30F, 1e-40F, 0, -0.0F, 88, -104, 1e30F, 127}, {}},
      {"denormal distances", {1e-40F, 2e-40F, 0, -1e-41F, 2e-40F}, {}},
  };
  SamplerRow dominated{"one that dominates", drawn(30, flat), {}};
  dominated.logits[11] = 60;
  rows.push_back(std::move(dominated));
  SamplerRow masked{"-Inf among others", drawn(24, wide), {}};
  for (std::size_t i = 0; i < masked.logits.size(); i += 3) masked.logits[i] = -kInf;
  rows.push_back(std::move(masked));
  rows.push_back({"all but one -Inf", {-kInf, -kInf, 2, -kInf}, {}});
  for (SamplerRow& row : rows) {
    for (std::size_t i = 0; i < 90; ++i)
      row.past.push_back(static_cast<TokenId>(random() % row.logits.size()));
  }
  return rows;
}

}  // namespace llm
