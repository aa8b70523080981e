#include "tests/engine/sampler_cases.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <utility>

#include "quant/numerics/arithmetic.h"
#include "tests/engine/naive_sampler.h"

namespace llm {
namespace {

bool same_distribution(const SamplerRow& row, const SamplerOptions& options) {
  const std::size_t n_generated = row.past.size() / 2;
  const auto actual = Sampler(options, 0, n_generated).distribution(row.logits, row.past, 0);
  const bool excludes = uniform_draw(options.seed, std::uint64_t{1} << 61, 0) <
                        static_cast<double>(options.xtc_probability);
  const auto expected =
      naive_distribution(options, row.logits, row.past, n_generated, SIZE_MAX, excludes);
  return actual.ok() &&
         std::ranges::equal(*actual, expected, [](const Candidate& a, const Candidate& b) {
           return a.id == b.id && std::bit_cast<std::uint32_t>(a.probability) ==
                                      std::bit_cast<std::uint32_t>(b.probability);
         });
}

using ManyOptions = std::vector<SamplerOptions>;

ManyOptions every_top_k(const SamplerRow& row) {
  ManyOptions options;
  for (std::size_t k = 0; k <= row.logits.size() + 2; ++k) options.push_back({.top_k = k});
  return options;
}

/// The value at which each token comes in, by what `limit` says of it, and the floats beside it.
template <auto kMember, typename Limit>
ManyOptions around_each_token(const SamplerRow& row, Limit limit) {
  ManyOptions options;
  for (const Candidate& c : naive_distribution({}, row.logits, row.past)) {
    const float at = limit(c);
    for (const float x : {std::nextafter(at, -1.0F), at, std::nextafter(at, 2.0F)}) {
      options.emplace_back();
      options.back().*kMember = std::clamp(x, 0.0F, 1.0F);
    }
  }
  return options;
}
ManyOptions every_top_p(const SamplerRow& row) {
  return around_each_token<&SamplerOptions::top_p>(
      row, [mass = 0.0F](const Candidate& c) mutable { return mass += c.probability; });
}
ManyOptions every_min_p(const SamplerRow& row) {
  const float largest = std::ranges::max(row.logits);
  return around_each_token<&SamplerOptions::min_p>(row, [&](const Candidate& c) {
    return contract::exp(row.logits[static_cast<std::size_t>(c.id)] - largest);
  });
}

ManyOptions penalties(const SamplerRow&) {
  ManyOptions options;
  for (const std::int64_t last : {-1, 0, 3, 64}) {
    for (const float repeat : {1.1F, 0.7F, 2.0F})
      options.push_back({.repeat_penalty = repeat, .repeat_last_n = last});
    options.push_back({.repeat_last_n = last, .presence_penalty = 1.5F, .frequency_penalty = 0.7F});
  }
  return options;
}

ManyOptions temperatures(const SamplerRow&) {
  ManyOptions options;
  for (const SamplerOrder order : {SamplerOrder::kHf, SamplerOrder::kLlamaCpp}) {
    for (const float temperature : {0.0F, 1e-38F, 0.3F, 1.7F, 100.0F})
      options.push_back(
          {.temperature = temperature, .top_p = 0.8F, .min_p = 0.05F, .order = order});
  }
  return options;
}

ManyOptions together(const SamplerRow& row) {
  std::mt19937 random(8);
  ManyOptions options(400);
  std::ranges::generate(options, [&] { return drawn_options(row.logits.size(), random); });
  return options;
}

constexpr std::pair<const char*, ManyOptions (*)(const SamplerRow&)> kKinds[] = {
    {"top-k", every_top_k},   {"top-p", every_top_p},        {"min-p", every_min_p},
    {"penalties", penalties}, {"temperature", temperatures}, {"all together", together}};

}  // namespace

std::vector<SamplerRow> generated_sampler_rows() {
  constexpr float kInf = std::numeric_limits<float>::infinity();
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

SamplerOptions drawn_options(std::size_t n, std::mt19937& random) {
  const auto of = [&random](std::initializer_list<float> values) {
    return values.begin()[random() % values.size()];
  };
  const auto uniform = [&random] { return static_cast<float>(random() % 1000) / 1000; };
  SamplerOptions options{.temperature =
                             of({1, 1, 1, 1, 0.8F, 0.3F, 1.7F, 5, 100, 1e-10F, 1e-38F, 1e30F, 0})};
  const std::size_t ks[] = {0, 0, 0, 0, 1, 2, 40, n - 1, n, n + 5, 1 + random() % n};
  options.top_k = ks[random() % std::size(ks)];
  options.top_n_sigma = of({0, 0, 0, -1, 1e-9F, 0.5F, 1, 3});
  options.top_p = of({1, 1, 1, 0, 0.05F, 0.5F, 0.9F, 0.95F, 0.999F, 0x1.fffffep-1F, uniform()});
  options.min_p = of({0, 0, 0, 0.05F, 0.2F, 1e-6F, 1, uniform()});
  options.repeat_penalty = of({1, 1, 1, 1.1F, 0.7F, 2});
  options.repeat_last_n = static_cast<std::int64_t>(of({-1, 0, 3, 64}));
  options.presence_penalty = of({0, 0, 0, 1.5F, -0.3F});
  options.frequency_penalty = of({0, 0, 0, 0.7F, -2});
  options.dry_multiplier = of({0, 0, 0, 0.8F, 5});
  options.dry_base = of({1.75F, 1, 3});
  options.dry_allowed_length = static_cast<std::size_t>(of({0, 1, 2, 4}));
  options.dry_penalty_last_n = static_cast<std::int64_t>(of({-1, -1, 0, 1, 20}));
  options.typical_p = of({1, 1, 1, 0, 0.2F, 0.9F, uniform()});
  options.xtc_probability = of({0, 0, 0.5F, 1});
  options.xtc_threshold = of({0.1F, 0.02F, 0, 0.3F, 0.5F, 0.51F});
  options.dynatemp_range = of({0, 0, 0, 0.5F, 2});
  options.dynatemp_exponent = of({1, 0, 0.3F, 2.5F});
  options.seed = random();
  options.order = random() % 2 == 0 ? SamplerOrder::kHf : SamplerOrder::kLlamaCpp;
  return options;
}

std::size_t differing_draws(std::span<const float> row, std::span<const TokenId> past,
                            const SamplerOptions& options, std::size_t n_draws) {
  const std::size_t n_generated = n_draws % (past.size() + 5);  // some are forgotten
  const std::size_t n_unbroken = n_draws % 7;
  // Where XTC does not strike, and where it does.
  std::array<std::vector<Candidate>, 2> both;
  std::array<std::vector<double>, 2> masses_of_both;
  for (const std::size_t excludes : {std::size_t{0}, std::size_t{1}}) {
    both[excludes] = naive_distribution(options, row, past, n_generated, n_unbroken, excludes == 1);
    auto& masses = masses_of_both[excludes];
    for (const Candidate& c : both[excludes])
      masses.push_back(static_cast<double>(c.probability) + (masses.empty() ? 0 : masses.back()));
  }
  std::size_t differing = 0;
  for (std::size_t i = 0; i < n_draws; ++i) {
    const std::uint64_t sequence = i % 3;
    const double uniform = uniform_draw(options.seed, sequence, i);
    const bool excludes = uniform_draw(options.seed, sequence ^ (std::uint64_t{1} << 61), i) <
                          static_cast<double>(options.xtc_probability);
    const auto& candidates = both[excludes ? 1 : 0];
    const auto& masses = masses_of_both[excludes ? 1 : 0];
    const auto at = std::ranges::upper_bound(masses, uniform) - masses.begin();
    const auto expected =
        at == std::ssize(masses) ? candidates[0].id : candidates[static_cast<std::size_t>(at)].id;
    const auto drawn = Sampler(options, sequence, n_generated, n_unbroken).sample(row, past, i);
    differing += drawn.ok() && *drawn == expected ? 0 : 1;
  }
  return differing;
}

std::vector<std::string> sampler_differences() {
  std::vector<std::string> lines;
  const auto rows = generated_sampler_rows();
  const auto note_first = [&](const std::string& kind, auto differs) {
    const auto row = std::ranges::find_if(rows, differs);
    if (row != rows.end()) lines.push_back("sampler, " + kind + ": " + row->name);
  };
  for (const auto& [kind, options_for] : kKinds) {
    note_first(kind, [options_for](const SamplerRow& row) {
      const auto options = options_for(row);
      return !std::ranges::all_of(options, std::bind_front(same_distribution, row));
    });
  }
  note_first("draws", [random = std::mt19937(3)](const SamplerRow& row) mutable {
    std::size_t differing = 0;
    for (int i = 0; i < 20; ++i)
      differing +=
          differing_draws(row.logits, row.past, drawn_options(row.logits.size(), random), 60);
    return differing > 0;
  });
  return lines;
}

}  // namespace llm
