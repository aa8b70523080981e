// Entries of KernelTable that work on one row: norm, RoPE, activations of gates, f16 and the
// quantizers.

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <random>

#include "engine/forward/reference/ops.h"
#include "quant/contract/arithmetic.h"
#include "quant/formats/half.h"
#include "validate/self/kernel_case.h"
#include "validate/self/kernel_entries.h"

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

void check_rope_case(KernelTables tables, const RopeCase& c, EntryVerdict& verdict) {
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
    for (const KernelTable* table : tables) {
      Floats actual(x, shift, Floats::kWritten);
      table->rope(actual.data(), begin, end, c.head_dim, cos.data(), sin.data(), c.pairs);
      verdict.add(table->isa,
                  fmt::format("{} heads of {}, {} pairs, elements {} .. {}, {} values", c.n_heads,
                              c.head_dim, c.pairs, begin, end, name_of(c.values)),
                  actual.difference(expected));
    }
  }
}

/// Of one block format: the kernels' block, the definition's, and the entry that makes it.
struct Q8K {
  using Kernel = KernelQ8K;
  using Definition = BlockQ8_K;
  static constexpr auto kEntry = &KernelTable::quantize_q8k;
};
struct Q8x32 {
  using Kernel = KernelQ8x32;
  using Definition = BlockQ8_32;
  static constexpr auto kEntry = &KernelTable::quantize_q8x32;
};

/// Quantizes n values as token `t` of n_tokens; blocks of the other tokens stay as they are.
template <typename Q>
void check_quantizer_case(KernelTables tables, std::size_t n, Values values, std::size_t t,
                          std::size_t n_tokens, EntryVerdict& verdict) {
  using Block = typename Q::Kernel;
  constexpr std::size_t kSize = Q::Definition::kWeights;
  const std::size_t shift = float_shift(n / 32 + t);
  const Floats x(draw(values, n, static_cast<std::uint32_t>(n + t)), shift, Floats::kRead);
  const std::size_t n_blocks = n / kSize * n_tokens;
  const Guarded<Block> untouched(n_blocks, 0, Guarded<Block>::kWritten);
  std::vector<Block> expected(untouched.span().begin(), untouched.span().end());
  for (std::size_t b = 0; b < n / kSize; ++b) {
    typename Q::Definition block;
    quantize_block(x.span().subspan(b * kSize).template first<kSize>(), block);
    expected[b * n_tokens + t] = kernel_block(block);
  }
  for (const KernelTable* table : tables) {
    Guarded<Block> actual(n_blocks, shift, Guarded<Block>::kWritten);
    (table->*Q::kEntry)(x.data(), n, actual.data() + t, n_tokens);
    verdict.add(table->isa,
                fmt::format("n {}, token {} of {}, {} values", n, t, n_tokens, name_of(values)),
                actual.difference(expected));
  }
}

template <typename Q>
CheckResult check_quantizer(KernelTables tables, const KernelSizes& sizes, std::string name) {
  constexpr std::size_t kSize = Q::Definition::kWeights;
  EntryVerdict verdict(std::move(name));
  std::vector<std::size_t> lengths;
  for (std::size_t b = 1; b <= 9; ++b) lengths.push_back(b * kSize);
  for (const std::size_t n : {sizes.d_model, sizes.d_ff, sizes.n_heads * sizes.head_dim}) {
    if (n >= kSize) lengths.push_back(n / kSize * kSize);
  }
  for (const std::size_t n : lengths) {
    for (const Values values : kAllValues) {
      check_quantizer_case<Q>(tables, n, values, 0, 1, verdict);
      check_quantizer_case<Q>(tables, n, values, 1, 3, verdict);
    }
  }
  return verdict.result(
      fmt::format("n {} .. {}, {}, {}", kSize, 9 * kSize, sizes.d_model, sizes.d_ff));
}

}  // namespace

CheckResult check_rms_norm(KernelTables tables, const KernelSizes& sizes) {
  constexpr float kEps = 1e-5F;
  EntryVerdict verdict("rms_norm");
  for (const std::size_t n : odd_sizes(sizes.d_model)) {
    for (const Values values : kAllValues) {
      const auto seed = static_cast<std::uint32_t>(n);
      const Floats x(draw(values, n, seed), float_shift(n), Floats::kRead);
      const Floats weight(draw(Values::kOutliers, n, seed), float_shift(n + 3), Floats::kRead);
      std::vector<float> expected(n);
      reference::rms_norm(x.span(), weight.span(), kEps, expected);
      for (const KernelTable* table : tables) {
        Floats y(n, float_shift(n + 5), Floats::kWritten);
        table->rms_norm(x.data(), weight.data(), n, kEps, y.data());
        verdict.add(table->isa, fmt::format("n {}, {} values", n, name_of(values)),
                    y.difference(expected));
      }
    }
  }
  return verdict.result(fmt::format("n 1 .. 33, 47 .. 49, {0} and next to it", sizes.d_model));
}

CheckResult check_activate(KernelTables tables, const KernelSizes& sizes) {
  EntryVerdict verdict("activate");
  for (const auto& [kind, name] : kActivations) {
    for (const std::size_t n : odd_sizes(sizes.d_ff)) {
      for (const Values values : kAllValues) {
        const auto seed = static_cast<std::uint32_t>(n);
        const std::vector<float> gate = draw(values, n, seed);
        const Floats up(draw(seed % 4 == 0 ? Values::kSpecial : Values::kWide, n, seed + 1),
                        float_shift(n + 3), Floats::kRead);
        std::vector<float> expected(n);
        reference::activate(kind, gate, up.span(), expected);
        for (const KernelTable* table : tables) {
          Floats actual(gate, float_shift(n), Floats::kWritten);
          table->activate(kind, actual.data(), up.data(), n);
          verdict.add(table->isa, fmt::format("{}, n {}, {} values", name, n, name_of(values)),
                      actual.difference(expected));
        }
      }
    }
  }
  return verdict.result(
      fmt::format("n 1 .. 33, 47 .. 49, {} and next to it, |x| up to 2^127", sizes.d_ff));
}

CheckResult check_axpy(KernelTables tables, const KernelSizes& sizes) {
  EntryVerdict verdict("axpy");
  for (const std::size_t n : odd_sizes(sizes.d_model)) {
    for (const Values values : kAllValues) {
      const auto seed = static_cast<std::uint32_t>(n);
      const Floats x(draw(values, n, seed), float_shift(n + 3), Floats::kRead);
      const std::vector<float> before = draw(Values::kPlain, n, seed + 1);
      for (const float a : {0.3F, 1.0F, 0x1p-130F}) {
        std::vector<float> expected = before;
        reference::axpy(a, x.span(), expected);
        for (const KernelTable* table : tables) {
          Floats y(before, float_shift(n), Floats::kWritten);
          table->axpy(a, x.data(), n, y.data());
          verdict.add(table->isa, fmt::format("n {}, a {}, {} values", n, a, name_of(values)),
                      y.difference(expected));
        }
      }
    }
  }
  return verdict.result(fmt::format("n 1 .. 33, 47 .. 49, {} and next to it", sizes.d_model));
}

CheckResult check_exp_distances(KernelTables tables, const KernelSizes& sizes) {
  EntryVerdict verdict("exp_distances");
  const auto check = [&](std::span<const float> x, float divisor, std::string_view what) {
    const float largest = std::ranges::max(x);
    std::vector<float> expected(x.size());
    std::ranges::transform(x, expected.begin(),
                           [&](float v) { return contract::exp((v - largest) / divisor); });
    const std::size_t shift = float_shift(x.size());
    const Floats from(x, shift, Floats::kRead);
    for (const KernelTable* table : tables) {
      Floats y(x.size(), shift, Floats::kWritten);
      table->exp_distances(from.data(), x.size(), largest, divisor, y.data());
      verdict.add(table->isa, fmt::format("n {}, divisor {}, {} values", x.size(), divisor, what),
                  y.difference(expected));
    }
  };
  for (const std::size_t n : odd_sizes(sizes.d_model)) {
    for (const Values values : {Values::kPlain, Values::kGates, Values::kWide, Values::kHuge}) {
      std::vector<float> x = draw(values, n, static_cast<std::uint32_t>(n));
      if (n > 1) x[n / 2] = -std::numeric_limits<float>::infinity();
      for (const float divisor : {1.0F, 0.7F, 1e-30F}) check(x, divisor, name_of(values));
    }
  }
  return verdict.result(fmt::format("n 1 .. 33, 47 .. 49, {} and next to it", sizes.d_model));
}

CheckResult check_to_half(KernelTables tables, const KernelSizes& sizes) {
  EntryVerdict verdict("to_half");
  const auto check = [&](const std::vector<float>& x, std::string_view what) {
    std::vector<std::uint16_t> expected;
    for (const float value : x) expected.push_back(f32_to_f16(value));
    const std::size_t shift = float_shift(x.size());
    const Floats from(x, shift, Floats::kRead);
    for (const KernelTable* table : tables) {
      Guarded<std::uint16_t> y(x.size(), shift / 2, Guarded<std::uint16_t>::kWritten);
      table->to_half(from.data(), x.size(), y.data());
      verdict.add(table->isa, fmt::format("n {}, {} values", x.size(), what),
                  y.difference(expected));
    }
  };
  for (const std::size_t n : odd_sizes(sizes.head_dim)) {
    for (const Values values : kAllValues) {
      check(draw(values, n, static_cast<std::uint32_t>(n)), name_of(values));
    }
  }
  // Every f16, the middle between it and the next, and the f32 next to either, NaNs among them.
  for (const std::uint32_t step : {0U, 1U, 0x0FFFU, 0x1000U, 0x1001U, 0x1FFFU}) {
    std::vector<float> x;
    for (std::uint32_t half = 0; half < 0x10000; ++half) {
      const float value = f16_to_f32(static_cast<std::uint16_t>(half));
      x.push_back(std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) + step));
    }
    check(x, "all f16");
  }
  return verdict.result("every f16, the middle to the next, n 1 .. 33");
}

CheckResult check_rope(KernelTables tables, const KernelSizes& sizes) {
  EntryVerdict verdict("rope");
  const std::size_t most = sizes.head_dim / 2;
  std::vector<std::size_t> pair_counts = {1, sizes.rope_pairs, most,
                                          std::max<std::size_t>(1, most - 1)};
  std::ranges::sort(pair_counts);
  pair_counts.erase(std::ranges::unique(pair_counts).begin(), pair_counts.end());
  for (const std::size_t pairs : pair_counts) {
    for (const std::size_t n_heads : {std::size_t{1}, std::size_t{3}, sizes.n_heads}) {
      for (const Values values :
           {Values::kPlain, Values::kWide, Values::kTiny, Values::kHuge, Values::kSpecial}) {
        check_rope_case(tables, {sizes.head_dim, n_heads, pairs, values}, verdict);
      }
    }
  }
  return verdict.result(fmt::format("1, 3 and {} heads of {}, {} pairs and others, sub-ranges",
                                    sizes.n_heads, sizes.head_dim, sizes.rope_pairs));
}

CheckResult check_quantize_q8k(KernelTables tables, const KernelSizes& sizes) {
  return check_quantizer<Q8K>(tables, sizes, "quantize_q8k");
}

CheckResult check_quantize_q8x32(KernelTables tables, const KernelSizes& sizes) {
  return check_quantizer<Q8x32>(tables, sizes, "quantize_q8x32");
}

}  // namespace llm
