// Entries of KernelTable that work on one row: norm, RoPE, activations of gates, f16, the
// quantizers, and those that turn partial results of attention into its context.

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "engine/forward/reference/ops.h"
#include "quant/formats/half.h"
#include "quant/numerics/arithmetic.h"
#include "validate/selftest/kernel_case.h"

namespace llm {
namespace {

using Floats = Guarded<float>;

/// Every multiple of 4 bytes to a cache line in turn: floats need no other alignment.
std::size_t float_shift(std::size_t n) { return n % 16 * sizeof(float); }

/// What rope is called with.
struct RopeCase {
  std::size_t head_dim;
  std::size_t n_heads;
  std::size_t pairs;
  Values values;

  std::size_t size() const { return head_dim * n_heads; }
};

struct Range {
  std::size_t begin;
  std::size_t end;
};

/// Even sub-ranges of a row of heads: all of it, around borders of heads and pairs, and 32 drawn.
std::vector<Range> even_ranges(const RopeCase& c) {
  const std::size_t n = c.size();
  const std::size_t head = c.head_dim;
  std::vector<Range> ranges = {{0, n},
                               {2, n},
                               {0, n - 2},
                               {n - 2, n},
                               {0, head},
                               {n - head, n},
                               {2 * c.pairs - 2, 2 * c.pairs},
                               {2 * c.pairs - 2, n},
                               {0, 2 * c.pairs}};
  if (c.n_heads > 1) {
    ranges.insert(ranges.end(), {{head - 2, head + 2}, {head, n}, {head / 2 / 2 * 2, head + 2}});
  }
  std::mt19937 random(static_cast<std::mt19937::result_type>(n));
  for (int i = 0; i < 32; ++i) {
    const std::size_t a = random() % (n / 2 + 1) * 2;
    const std::size_t b = random() % (n / 2 + 1) * 2;
    ranges.push_back({std::min(a, b), std::max(a, b)});
  }
  return ranges;
}

void check_rope_case(EntryCheck& check, const RopeCase& c) {
  const auto seed = static_cast<std::uint32_t>(c.size() + c.pairs);
  const std::vector<float> x = draw(c.values, c.size(), seed);
  const std::size_t shift = float_shift(c.pairs + static_cast<std::size_t>(c.values));
  const Floats cos(draw(Values::kPlain, c.pairs, seed + 1), shift, Floats::kRead);
  const Floats sin(draw(Values::kPlain, c.pairs, seed + 2), shift, Floats::kRead);
  std::vector<float> rotated = x;
  reference::rope(rotated, c.head_dim, cos.span(), sin.span());
  for (const auto& [begin, end] : even_ranges(c)) {
    std::vector<float> expected = x;
    for (std::size_t i = begin; i < end; ++i) expected[i] = rotated[i];
    check.compare(fmt::format("{} heads of {}, {} pairs, elements {} .. {}, {} values", c.n_heads,
                              c.head_dim, c.pairs, begin, end, name_of(c.values)),
                  expected, x, shift, [&, begin = begin, end = end](auto& table, float* out) {
                    table.rope(out, begin, end, c.head_dim, cos.data(), sin.data(), c.pairs);
                  });
  }
}

/// Quantizes n values as token `t` of n_tokens; blocks of the other tokens stay as they are.
template <typename Definition, typename Kernel>
void check_quantizer_case(EntryCheck& check,
                          void (*KernelTable::*entry)(const float*, std::size_t, Kernel*,
                                                      std::size_t),
                          std::size_t n, Values values, std::size_t t, std::size_t n_tokens) {
  constexpr std::size_t kSize = Definition::kWeights;
  const std::size_t shift = float_shift(n / 32 + t);
  const Floats x(draw(values, n, static_cast<std::uint32_t>(n + t)), shift, Floats::kRead);
  const auto before = untouched<Kernel>(n / kSize * n_tokens);
  std::vector<Kernel> expected = before;
  for (std::size_t b = 0; b < n / kSize; ++b) {
    Definition block;
    quantize_block(x.span().subspan(b * kSize).template first<kSize>(), block);
    expected[b * n_tokens + t] = kernel_block(block);
  }
  check.compare(fmt::format("n {}, token {} of {}, {} values", n, t, n_tokens, name_of(values)),
                expected, before, shift,
                [&](auto& table, Kernel* out) { (table.*entry)(x.data(), n, out + t, n_tokens); });
}

template <typename Definition>
CheckResult check_quantizer(KernelTables tables, const KernelSizes& sizes, std::string name,
                            auto entry) {
  constexpr std::size_t kSize = Definition::kWeights;
  EntryCheck check(std::move(name), tables);
  std::vector<std::size_t> lengths;
  for (std::size_t b = 1; b <= 9; ++b) lengths.push_back(b * kSize);
  for (const std::size_t n : {sizes.d_model, sizes.d_ff, sizes.n_heads * sizes.head_dim}) {
    if (n >= kSize) lengths.push_back(n / kSize * kSize);
  }
  for (const std::size_t n : lengths) {
    for (const Values values : kAllValues) {
      check_quantizer_case<Definition>(check, entry, n, values, 0, 1);
      check_quantizer_case<Definition>(check, entry, n, values, 1, 3);
    }
  }
  return check.result(
      fmt::format("n {} .. {}, {}, {}", kSize, 9 * kSize, sizes.d_model, sizes.d_ff));
}

/// What merge and finish are called with: m near enough to another's that both count, or not.
std::vector<float> draw_partial(Values values, std::size_t dim, std::uint32_t seed) {
  std::vector<float> partial = draw(values, 2 + dim, seed);
  if (values == Values::kSpecial) return partial;
  const float spread = seed % 2 == 0 ? 2.0F : 120.0F;
  partial[0] = spread * draw(Values::kPlain, 1, seed)[0];
  partial[1] = std::fabs(partial[1]) + 1.0F;
  return partial;
}

reference::AttentionPartial partial_of(std::span<const float> row) {
  return {row[0], row[1], {row.begin() + 2, row.end()}};
}

}  // namespace

CheckResult check_rms_norm(KernelTables tables, const KernelSizes& sizes) {
  constexpr float kEps = 1e-5F;
  EntryCheck check("rms_norm", tables);
  for_each_case(sizes.d_model, [&](std::size_t n, Values values, std::uint32_t seed) {
    const Floats x(draw(values, n, seed), float_shift(n), Floats::kRead);
    const Floats weight(draw(Values::kOutliers, n, seed), float_shift(n + 3), Floats::kRead);
    std::vector<float> expected(n);
    reference::rms_norm(x.span(), weight.span(), kEps, expected);
    check.compare(fmt::format("n {}, {} values", n, name_of(values)), expected, untouched<float>(n),
                  float_shift(n + 5), [&](auto& table, float* y) {
                    table.rms_norm(x.data(), weight.data(), n, kEps, y);
                  });
  });
  return check.result(sizes_text("n", sizes.d_model));
}

CheckResult check_activate(KernelTables tables, const KernelSizes& sizes) {
  EntryCheck check("activate", tables);
  for (const auto& [kind, name] : kActivations) {
    for_each_case(sizes.d_ff, [&, kind = kind, name = name](std::size_t n, Values values,
                                                            std::uint32_t seed) {
      const std::vector<float> gate = draw(values, n, seed);
      const Floats up(draw(seed % 4 == 0 ? Values::kSpecial : Values::kWide, n, seed + 1),
                      float_shift(n + 3), Floats::kRead);
      std::vector<float> expected(n);
      reference::activate(kind, gate, up.span(), expected);
      check.compare(fmt::format("{}, n {}, {} values", name, n, name_of(values)), expected, gate,
                    float_shift(n),
                    [&](auto& table, float* x) { table.activate(kind, x, up.data(), n); });
    });
  }
  return check.result(sizes_text("n", sizes.d_ff) + ", |x| up to 2^127");
}

CheckResult check_soft_cap(KernelTables tables, const KernelSizes& sizes) {
  EntryCheck check("soft_cap", tables);
  for_each_case(sizes.d_model, [&](std::size_t n, Values values, std::uint32_t seed) {
    const std::vector<float> before = draw(values, n, seed);
    for (const float cap : {30.0F, 0.7F}) {
      std::vector<float> expected = before;
      for (float& x : expected) x = contract::soft_cap(x, cap);
      check.compare(fmt::format("n {}, cap {}, {} values", n, cap, name_of(values)), expected,
                    before, float_shift(n),
                    [&](auto& table, float* x) { table.soft_cap(x, n, cap); });
    }
  });
  return check.result(sizes_text("n", sizes.d_model));
}

CheckResult check_axpy(KernelTables tables, const KernelSizes& sizes) {
  EntryCheck check("axpy", tables);
  for_each_case(sizes.d_model, [&](std::size_t n, Values values, std::uint32_t seed) {
    const Floats x(draw(values, n, seed), float_shift(n + 3), Floats::kRead);
    const std::vector<float> before = draw(Values::kPlain, n, seed + 1);
    for (const float a : {0.3F, 1.0F, 0x1p-130F}) {
      std::vector<float> expected = before;
      reference::axpy(a, x.span(), expected);
      check.compare(fmt::format("n {}, a {}, {} values", n, a, name_of(values)), expected, before,
                    float_shift(n), [&](auto& table, float* y) { table.axpy(a, x.data(), n, y); });
    }
  });
  return check.result(sizes_text("n", sizes.d_model));
}

CheckResult check_exp_distances(KernelTables tables, const KernelSizes& sizes) {
  EntryCheck check("exp_distances", tables);
  for (const std::size_t n : odd_sizes(sizes.d_model)) {
    for (const Values values : {Values::kPlain, Values::kGates, Values::kWide, Values::kHuge}) {
      std::vector<float> x = draw(values, n, static_cast<std::uint32_t>(n));
      if (n > 1) x[n / 2] = -std::numeric_limits<float>::infinity();
      const float largest = std::ranges::max(x);
      const Floats from(x, float_shift(n), Floats::kRead);
      for (const float divisor : {1.0F, 0.7F, 1e-30F}) {
        std::vector<float> expected(n);
        std::ranges::transform(x, expected.begin(),
                               [&](float v) { return contract::exp((v - largest) / divisor); });
        check.compare(fmt::format("n {}, divisor {}, {} values", n, divisor, name_of(values)),
                      expected, untouched<float>(n), float_shift(n), [&](auto& table, float* y) {
                        table.exp_distances(from.data(), n, largest, divisor, y);
                      });
      }
    }
  }
  return check.result(sizes_text("n", sizes.d_model));
}

CheckResult check_to_half(KernelTables tables, const KernelSizes& sizes) {
  EntryCheck check("to_half", tables);
  const auto compare = [&](const std::vector<float>& x, std::string_view what) {
    std::vector<std::uint16_t> expected;
    for (const float value : x) expected.push_back(f32_to_f16(value));
    const std::size_t n = x.size();
    const Floats from(x, float_shift(n), Floats::kRead);
    check.compare(fmt::format("n {}, {} values", n, what), expected, untouched<std::uint16_t>(n),
                  float_shift(n) / 2,
                  [&](auto& table, std::uint16_t* y) { table.to_half(from.data(), n, y); });
  };
  for_each_case(sizes.head_dim, [&](std::size_t n, Values values, std::uint32_t seed) {
    compare(draw(values, n, seed), name_of(values));
  });
  // Every f16, the middle between it and the next, and the f32 next to either, NaNs among them.
  for (const std::uint32_t step : {0U, 1U, 0x0FFFU, 0x1000U, 0x1001U, 0x1FFFU}) {
    std::vector<float> x;
    for (std::uint32_t half = 0; half < 0x10000; ++half) {
      const float value = f16_to_f32(static_cast<std::uint16_t>(half));
      x.push_back(std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) + step));
    }
    compare(x, "all f16");
  }
  return check.result("every f16, the middle to the next, n 1 .. 33");
}

CheckResult check_rope(KernelTables tables, const KernelSizes& sizes) {
  EntryCheck check("rope", tables);
  const std::size_t most = sizes.head_dim / 2;
  const std::set<std::size_t> pair_counts = {1, sizes.rope_pairs, most,
                                             std::max<std::size_t>(1, most - 1)};
  for (const std::size_t pairs : pair_counts) {
    for (const std::size_t n_heads : {std::size_t{1}, std::size_t{3}, sizes.n_heads}) {
      for (const Values values :
           {Values::kPlain, Values::kWide, Values::kTiny, Values::kHuge, Values::kSpecial})
        check_rope_case(check, {sizes.head_dim, n_heads, pairs, values});
    }
  }
  return check.result(fmt::format("1, 3 and {} heads of {}, {} pairs and others, sub-ranges",
                                  sizes.n_heads, sizes.head_dim, sizes.rope_pairs));
}

CheckResult check_quantize_q8k(KernelTables tables, const KernelSizes& sizes) {
  return check_quantizer<BlockQ8_K>(tables, sizes, "quantize_q8k", &KernelTable::quantize_q8k);
}

CheckResult check_quantize_q8x32(KernelTables tables, const KernelSizes& sizes) {
  return check_quantizer<BlockQ8_32>(tables, sizes, "quantize_q8x32", &KernelTable::quantize_q8x32);
}

CheckResult check_merge(KernelTables tables, const KernelSizes& sizes) {
  EntryCheck check("merge", tables);
  for_each_case(sizes.head_dim, [&](std::size_t dim, Values values, std::uint32_t seed) {
    const std::vector<float> first = draw_partial(values, dim, seed);
    const Floats later(draw_partial(values, dim, seed + 1), float_shift(dim), Floats::kRead);
    reference::AttentionPartial sum = partial_of(first);
    reference::merge(sum, partial_of(later.span()));
    std::vector<float> expected = {sum.m, sum.l};
    expected.insert(expected.end(), sum.o.begin(), sum.o.end());
    check.compare(fmt::format("head_dim {}, {} values", dim, name_of(values)), expected, first,
                  float_shift(dim),
                  [&](auto& table, float* into) { table.merge(into, later.data(), dim); });
  });
  return check.result(sizes_text("head_dim", sizes.head_dim));
}

CheckResult check_finish(KernelTables tables, const KernelSizes& sizes) {
  EntryCheck check("finish", tables);
  for_each_case(sizes.head_dim, [&](std::size_t dim, Values values, std::uint32_t seed) {
    const Floats partial(draw_partial(values, dim, seed), float_shift(dim), Floats::kRead);
    std::vector<float> expected(dim);
    reference::finish(partial_of(partial.span()), expected);
    check.compare(fmt::format("head_dim {}, {} values", dim, name_of(values)), expected,
                  untouched<float>(dim), float_shift(dim),
                  [&](auto& table, float* out) { table.finish(partial.data(), dim, out); });
  });
  return check.result(sizes_text("head_dim", sizes.head_dim));
}

}  // namespace llm
