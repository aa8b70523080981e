// The definition's products against sums in f64.

#include <cmath>

#include "quant/formats/activations.h"
#include "quant/formats/block_visit.h"
#include "quant/formats/dequantize.h"
#include "quant/formats/reference/dot.h"
#include "validate/selftest/definition_bound.h"
#include "validate/selftest/kernel_case.h"

namespace llm {
namespace {

constexpr std::size_t kCols = 512;
constexpr std::size_t kRows = 4;

/// What a row of activations stands for.
std::vector<double> decoded(ActivationFormat format, std::span<const std::byte> row) {
  std::vector<double> values;
  visit_activation_block(format, [&]<typename Block>() {
    for (std::size_t b = 0; b < row.size() / sizeof(Block); ++b) {
      const auto block = load_block<Block>(row, b);
      if constexpr (requires { block.value; }) {
        values.push_back(f64(block.value));
      } else {
        for (const std::int8_t code : block.qs) values.push_back(f64(block.d) * code);
      }
    }
  });
  return values;
}

/// A sum, and the bound of as many roundings of its terms as the definition has. Minima are added
/// apart, so a weight may be the difference of two that are larger.
void add_sum(Bounded& verdict, float actual, std::span<const float> w, std::span<const double> x,
             double roundings) {
  double sum = 0;
  double largest = 0;
  double all = 0;
  for (std::size_t i = 0; i < w.size(); ++i) {
    sum += f64(w[i]) * x[i];
    largest = std::max(largest, std::abs(f64(w[i])));
    all += std::abs(x[i]);
  }
  verdict.add(f64(actual), sum, roundings * kU * 2 * largest * all, f64(actual));
}

CheckResult check_type(const BlockTraits& traits) {
  Bounded verdict(fmt::format("products, {},", traits.name));
  const WeightType type = traits.type;
  const ActivationFormat format = activation_format(type);
  const auto matrix = draw_matrix(type, kRows, kCols, Codes::kRandom);
  const std::size_t bytes = row_bytes(type, kCols);
  for (std::size_t r = 0; r < kRows; ++r) {
    const auto row = std::span(matrix).subspan(r * bytes, bytes);
    const auto x = draw(Values::kPlain, kCols, static_cast<std::uint32_t>(r));
    std::vector<float> w(kCols);
    contract::dequantize_row(type, row, w);
    std::vector<std::byte> codes(activation_row_bytes(format, kCols));
    quantize_activations(format, x, codes);
    float y = 0;
    reference::dot_row(type, row, codes, {&y, 1});
    const std::size_t scaled =
        type == WeightType::kNVFP4 ? BlockNVFP4::kScaled : activation_block_size(format);
    const auto n_sums = static_cast<double>(kCols / scaled);
    add_sum(verdict, y, w, decoded(format, codes), 2 * n_sums + 6);
    reference::dot_row_f32(type, row, x, {&y, 1});
    add_sum(verdict, y, w, decoded(ActivationFormat::kF32, std::as_bytes(std::span(x))),
            static_cast<double>(kCols));
  }
  return verdict.result("rows of 512");
}

}  // namespace

CheckResult check_definition_of_products() {
  std::size_t n = 0;
  for (const BlockTraits& traits : all_block_traits()) {
    if (traits.type == WeightType::kQ8_K) continue;
    CheckResult result = check_type(traits);
    if (!result.passed) return result;
    ++n;
  }
  return {"definition of products against f64", n > 0,
          fmt::format("int8 and f32, {} weight types", n)};
}

}  // namespace llm
