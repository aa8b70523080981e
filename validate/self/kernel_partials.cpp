// Entries of KernelTable that turn partial results of attention into its context: merge, finish.

#include <fmt/core.h>

#include <cmath>

#include "engine/forward/reference/ops.h"
#include "validate/self/kernel_case.h"
#include "validate/self/kernel_entries.h"

namespace llm {
namespace {

using Floats = Guarded<float>;

/// What merge and finish are called with: m near enough to another's that both count, or not.
std::vector<float> draw_partial(Values values, std::size_t dim, std::uint32_t seed) {
  std::vector<float> partial = draw(values, 2 + dim, seed);
  if (values == Values::kSpecial) return partial;
  const float spread = seed % 2 == 0 ? 2.0F : 120.0F;
  partial[0] = spread * draw(Values::kPlain, 1, seed)[0];
  partial[1] = std::fabs(partial[1]) + 1.0F;
  return partial;
}

}  // namespace

CheckResult check_merge(KernelTables tables, const KernelSizes& sizes) {
  EntryVerdict verdict("merge");
  for (const std::size_t dim : odd_sizes(sizes.head_dim)) {
    for (const Values values : kAllValues) {
      const auto seed = static_cast<std::uint32_t>(dim);
      const std::size_t shift = dim % 16 * sizeof(float);
      const std::vector<float> first = draw_partial(values, dim, seed);
      const Floats later(draw_partial(values, dim, seed + 1), shift, Floats::kRead);
      reference::AttentionPartial sum{first[0], first[1], {first.begin() + 2, first.end()}};
      const float* o = later.data() + 2;
      reference::merge(sum, {later.data()[0], later.data()[1], {o, o + dim}});
      std::vector<float> expected = {sum.m, sum.l};
      expected.insert(expected.end(), sum.o.begin(), sum.o.end());
      for (const KernelTable* table : tables) {
        Floats actual(first, shift, Floats::kWritten);
        table->merge(actual.data(), later.data(), dim);
        verdict.add(table->isa, fmt::format("head_dim {}, {} values", dim, name_of(values)),
                    actual.difference(expected));
      }
    }
  }
  return verdict.result(
      fmt::format("head_dim 1 .. 33, 47 .. 49, {} and next to it", sizes.head_dim));
}

CheckResult check_finish(KernelTables tables, const KernelSizes& sizes) {
  EntryVerdict verdict("finish");
  for (const std::size_t dim : odd_sizes(sizes.head_dim)) {
    for (const Values values : kAllValues) {
      const auto seed = static_cast<std::uint32_t>(dim);
      const std::size_t shift = dim % 16 * sizeof(float);
      const Floats partial(draw_partial(values, dim, seed), shift, Floats::kRead);
      const float* o = partial.data() + 2;
      std::vector<float> expected(dim);
      reference::finish({partial.data()[0], partial.data()[1], {o, o + dim}}, expected);
      for (const KernelTable* table : tables) {
        Floats actual(dim, shift, Floats::kWritten);
        table->finish(partial.data(), dim, actual.data());
        verdict.add(table->isa, fmt::format("head_dim {}, {} values", dim, name_of(values)),
                    actual.difference(expected));
      }
    }
  }
  return verdict.result(
      fmt::format("head_dim 1 .. 33, 47 .. 49, {} and next to it", sizes.head_dim));
}

}  // namespace llm
