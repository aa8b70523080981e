// Every entry of KernelTable by itself, and proof that a wrong one is named.

#include "validate/selftest/kernel_check.h"

#include "quant/formats/block_traits.h"
#include "quant/formats/half.h"
#include "quant/numerics/arithmetic.h"
#include "tests/support/isas.h"
#include "tests/validate/check_results.h"

namespace llm::test {
namespace {

std::vector<WeightType> all_types() {
  std::vector<WeightType> types;
  for (const BlockTraits& traits : all_block_traits()) types.push_back(traits.type);
  return types;
}

/// One KV head's worth of a shape; products do not depend on it.
KernelSizes shape(std::size_t head_dim, std::size_t heads_per_kv, std::size_t rope_pairs,
                  std::size_t context) {
  const std::size_t d_model = head_dim * heads_per_kv;
  return {.d_model = d_model,
          .d_ff = 2 * d_model + 21,
          .n_heads = heads_per_kv,
          .n_kv_heads = 1,
          .head_dim = head_dim,
          .rope_pairs = rope_pairs,
          .context = context};
}

/// The fastest table here: what broken ones are copied from.
const KernelTable& right() {
  static const KernelTable& table = *kernel_tables_here().back();
  return table;
}

// ---- wrong entries of a kind that tests/fault_injection does not plant

void activate_one_too_many(Activation kind, float* gate, const float* up, std::size_t n) {
  right().activate(kind, gate, up, n);
  gate[n] = 0;
}

/// Codes of n values with ties rounded away from zero instead of to even.
void round_ties_away(const float* x, std::size_t n, std::int8_t* codes) {
  float amax = 0;
  for (std::size_t i = 0; i < n; ++i) amax = std::max(amax, std::fabs(x[i]));
  if (!std::isfinite(amax) || !std::isfinite(127.0F / amax)) return;
  for (std::size_t i = 0; i < n; ++i) {
    codes[i] = static_cast<std::int8_t>(std::round(x[i] * (127.0F / amax)));
  }
}

template <auto kEntry, typename Block>
void quantize_ties_away(const float* x, std::size_t n, Block* out, std::size_t n_tokens) {
  (right().*kEntry)(x, n, out, n_tokens);
  for (std::size_t b = 0; b < n / Block::kSize; ++b)
    round_ties_away(x + b * Block::kSize, Block::kSize, out[b * n_tokens].qs);
}

void quantize_q8x32_one_token(const float* x, std::size_t n, KernelQ8x32* out, std::size_t) {
  right().quantize_q8x32(x, n, out, 1);
}

void matmul_from_first_panel(const MatmulArgs& args) {
  MatmulArgs more = args;
  if (!args.dequantize) more.panel_begin = 0;
  right().matmul(more);
}

void cut_at_cap(float* x, std::size_t n, float cap) {
  for (std::size_t i = 0; i < n; ++i) x[i] = std::clamp(x[i], -cap, cap);
}

struct Fault {
  std::string entry;  ///< as check_kernels() names it
  std::string what;
  KernelTable table;
};

template <auto kEntry, typename Function>
Fault fault(std::string entry, std::string what, Function function) {
  KernelTable table = right();
  table.*kEntry = function;
  return {std::move(entry), std::move(what), table};
}

std::vector<Fault> all_faults() {
  using T = KernelTable;
  return {
      fault<&T::activate>("activate", "writes one element more", activate_one_too_many),
      fault<&T::soft_cap>("soft_cap", "cuts", cut_at_cap),
      fault<&T::quantize_q8k>("quantize_q8k", "ties away from 0",
                              quantize_ties_away<&T::quantize_q8k, KernelQ8K>),
      fault<&T::quantize_q8x32>("quantize_q8x32", "ties away from 0",
                                quantize_ties_away<&T::quantize_q8x32, KernelQ8x32>),
      fault<&T::quantize_q8x32>("quantize_q8x32", "no stride", quantize_q8x32_one_token),
      fault<&T::matmul>("matmul, Q4_K", "all panels", matmul_from_first_panel),
  };
}

}  // namespace

TEST_CASE("every kernel entry equals the definition on every instruction set", "[kernels]") {
  constexpr std::size_t kFar = effort<std::size_t>(1100, 300);
  constexpr std::size_t kNear = effort<std::size_t>(300, 40);
  supported_isas();  // says which are skipped
  KernelSizes sizes =
      GENERATE(shape(16, 1, 8, kNear), shape(18, 2, 9, kNear), shape(20, 5, 8, kNear),
               shape(32, 2, 16, kFar), shape(48, 6, 24, kNear), shape(64, 8, 32, kFar),
               shape(80, 4, 40, kNear), shape(96, 3, 48, kNear), shape(100, 1, 30, kNear),
               shape(112, 7, 56, kNear), shape(128, 4, 64, kNear), shape(160, 2, 1, kNear),
               shape(256, 1, 128, kNear), shape(512, 1, 256, kNear));
  if (sizes.head_dim == 32) sizes.types = all_types();
  const auto results = require_ok(check_kernels(kernel_tables_here(), sizes));
  CHECK(results.size() == 16 + sizes.types.size());
  check_passed(results);
}

TEST_CASE("a kernel entry that is wrong fails its own check and no other", "[kernels]") {
  for (const Fault& wrong : all_faults()) {
    KernelSizes sizes = shape(20, 2, 10, effort<std::size_t>(1100, 600));
    sizes.types = {WeightType::kQ4_K};
    const KernelTable* tables[] = {&wrong.table};
    const auto results = require_ok(check_kernels(tables, sizes));
    for (const CheckResult& result : results) {
      INFO(wrong.entry << " (" << wrong.what << "): " << result.name << ": " << result.detail);
      CHECK(result.passed == (result.name != "kernel " + wrong.entry));
      if (!result.passed) CHECK(result.detail.find(isa_name(wrong.table.isa)) != std::string::npos);
    }
  }
}

TEST_CASE("the report says how much of a long context was attended", "[kernels]") {
  const auto covered = [](std::size_t head_dim, std::size_t context) {
    const auto results = check_kernels(kernel_tables_here(), shape(head_dim, 1, 8, context));
    REQUIRE(results.ok());
    CHECK((*results)[8].passed);
    return results->back().detail;
  };
  CHECK_THAT(covered(16, 5000), Catch::Matchers::Contains("5000 of 5000 positions"));
  CHECK(longest_attended(shape(256, 1, 8, 1'000'000)) == 32768);
}

}  // namespace llm::test
