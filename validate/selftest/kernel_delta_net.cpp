// Entries of KernelTable that Gated DeltaNets and Mamba-2 have.

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "engine/forward/reference/delta_net.h"
#include "quant/numerics/delta_net.h"
#include "validate/selftest/kernel_case.h"

namespace llm {
namespace {

using Floats = Guarded<float>;

struct RuleCase {
  std::size_t k_dim;
  std::size_t n_columns;
  std::size_t n_tokens;
  Values values;
  bool finds;  ///< a Gated DeltaNet's; false: Mamba-2's
};

/// The output, then the state.
void check_rule_case(EntryCheck& check, const RuleCase& c) {
  constexpr std::size_t kColumns = DeltaState::kColumns;
  const auto seed = static_cast<std::uint32_t>(c.k_dim + c.n_columns);
  const std::size_t stride = 2 * c.k_dim + c.n_columns + 3;
  const Floats rows(draw(c.values, c.n_tokens * stride, seed), c.k_dim % 16 * sizeof(float),
                    Floats::kRead);
  std::vector<float> gates = draw(Values::kPlain, 2 * c.n_tokens, seed + 1);
  for (float& gate : gates) gate = 0.5F + gate / 2;
  const Floats decay(gates, 0, Floats::kRead);
  const std::size_t n_out = c.n_tokens * c.n_columns;
  std::vector<float> before = untouched<float>(n_out);
  std::vector<float> state = draw(Values::kPlain, c.k_dim * kColumns, seed + 2);
  for (std::size_t i = 0; i < state.size(); ++i)
    if (i % kColumns >= c.n_columns) state[i] = 0;
  before.insert(before.end(), state.begin(), state.end());

  const float past = 0.7F;
  std::vector<float> expected = before;
  for (std::size_t t = 0; t < c.n_tokens; ++t) {
    const auto q = rows.span().subspan(t * stride, c.k_dim);
    const auto k = rows.span().subspan(t * stride + c.k_dim, c.k_dim);
    for (std::size_t column = 0; column < c.n_columns; ++column) {
      const float v = rows.span()[t * stride + 2 * c.k_dim + column];
      float* const of_column = expected.data() + n_out + column;
      expected[t * c.n_columns + column] =
          c.finds
              ? reference::delta_rule(q, k, v, gates[2 * t], gates[2 * t + 1], of_column, kColumns)
              : reference::scan(q, k, v, gates[2 * t], gates[2 * t + 1], past, of_column, kColumns);
    }
  }
  // NaN may reach the columns beyond, which no one reads.
  if (c.values == Values::kSpecial && c.n_columns < kColumns) return;
  check.compare(
      fmt::format("{}k_dim {}, {} columns, {} tokens, {} values", c.finds ? "" : "Mamba-2, ",
                  c.k_dim, c.n_columns, c.n_tokens, name_of(c.values)),
      expected, before, n_out % 16 * sizeof(float), [&](auto& table, float* out) {
        table.delta_rule({.q = rows.data(),
                          .k = rows.data() + c.k_dim,
                          .v = rows.data() + 2 * c.k_dim,
                          .stride = stride,
                          .decay = decay.data(),
                          .beta = decay.data() + 1,
                          .gate_stride = 2,
                          .state = out + n_out,
                          .out = out,
                          .out_stride = c.n_columns,
                          .k_dim = c.k_dim,
                          .n_columns = c.n_columns,
                          .n_tokens = c.n_tokens,
                          .finds = c.finds,
                          .past = past});
      });
}

}  // namespace

CheckResult check_convolve(KernelTables tables, const KernelSizes& sizes) {
  EntryCheck check("convolve", tables);
  for_each_case(sizes.head_dim, [&](std::size_t n, Values values, std::uint32_t seed) {
    const std::size_t width = 2 + seed % 3;
    const std::size_t stride = n + seed % 5;
    const bool silu = seed % 2 == 0;
    const bool has_bias = seed / 2 % 2 == 0;
    const Floats bias(draw(values, n, seed + 2), n % 5 * sizeof(float), Floats::kRead);
    const Floats x(draw(values, width * stride, seed), n % 16 * sizeof(float), Floats::kRead);
    const std::vector<float> in_file = draw(Values::kPlain, width * n, seed + 1);
    std::vector<float> turned(width * stride);
    std::vector<const float*> rows;
    std::vector<float> expected;
    for (std::size_t j = 0; j < width; ++j) rows.push_back(x.data() + j * stride);
    for (std::size_t c = 0; c < n; ++c) {
      std::vector<float> inputs;
      for (std::size_t j = 0; j < width; ++j) {
        turned[j * stride + c] = in_file[c * width + j];
        inputs.push_back(rows[j][c]);
      }
      expected.push_back(reference::convolve(inputs, std::span(in_file).subspan(c * width, width),
                                             bias.span().subspan(c, has_bias ? 1 : 0), silu));
    }
    const Floats weights(turned, n % 3 * sizeof(float), Floats::kRead);
    check.compare(fmt::format("{} channels, width {}{}{}, {} values", n, width,
                              has_bias ? ", bias" : "", silu ? ", silu" : "", name_of(values)),
                  expected, untouched<float>(n), n % 7 * sizeof(float), [&](auto& table, float* y) {
                    table.convolve({.rows = rows.data(),
                                    .weights = weights.data(),
                                    .stride = stride,
                                    .width = width,
                                    .n = n,
                                    .bias = has_bias ? bias.data() : nullptr,
                                    .silu = silu,
                                    .y = y});
                  });
  });
  return check.result(fmt::format("1 .. 33 and {} channels, width 2 .. 4", sizes.head_dim));
}

CheckResult check_unit_length(KernelTables tables, const KernelSizes& sizes) {
  EntryCheck check("unit_length", tables);
  for_each_case(sizes.head_dim, [&](std::size_t n, Values values, std::uint32_t seed) {
    const std::vector<float> before = draw(values, n, seed);
    for (const float factor : {1.0F, 0.3F}) {
      std::vector<float> expected = before;
      reference::unit_length(expected, factor);
      check.compare(fmt::format("n {}, factor {}, {} values", n, factor, name_of(values)), expected,
                    before, n % 16 * sizeof(float),
                    [&](auto& table, float* x) { table.unit_length(x, n, factor); });
    }
  });
  return check.result(fmt::format("n 1 .. 33, {}", sizes.head_dim));
}

CheckResult check_delta_rule(KernelTables tables, const KernelSizes& /*sizes*/) {
  EntryCheck check("delta_rule", tables);
  for (const std::size_t k_dim : {1, 9, 12, 16, 20, 29, 64, 128}) {
    for (const std::size_t n_columns : {1, 7, 16}) {
      for (const std::size_t n_tokens : {1, 5}) {
        for (const Values values : {Values::kPlain, Values::kWide, Values::kTiny, Values::kSpecial})
          for (const bool finds : {true, false})
            check_rule_case(check, {k_dim, n_columns, n_tokens, values, finds});
      }
    }
  }
  return check.result("k_dim 1 .. 128, 1, 7 and 16 columns, 1 and 5 tokens");
}

}  // namespace llm
