#include "tools/llmgguf/likeness.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include "base/shown_text.h"
#include "quant/formats/dequantize.h"

namespace llm {
namespace {

constexpr std::uint64_t kMostTransposed = std::uint64_t{1} << 27;  // weights, which are in memory
constexpr double kNoise = 1e-6;                                    // NMSE: that of a rounding

std::string_view data_of(const OpenGguf& open, const GgufTensor& tensor) {
  const auto data = open.gguf.tensor_data(tensor);
  return {reinterpret_cast<const char*>(data.data()), data.size()};
}

bool same_form(const GgufTensor& x, const GgufTensor& y) {
  return x.type == y.type && x.dims == y.dims;
}

/// Row r, dequantized.
std::vector<float> row_of(const OpenGguf& open, const GgufTensor& tensor, std::size_t r) {
  std::vector<float> row(tensor.dims[0]);
  const std::size_t stride = row_bytes(tensor.type, tensor.dims[0]);
  contract::dequantize_row(tensor.type, open.gguf.tensor_data(tensor).subspan(r * stride, stride),
                           row);
  return row;
}

std::size_t n_rows(const GgufTensor& tensor) { return tensor.n_elements / tensor.dims[0]; }

std::vector<std::string_view> sorted_rows(const OpenGguf& open, const GgufTensor& tensor) {
  const std::size_t stride = row_bytes(tensor.type, tensor.dims[0]);
  std::vector<std::string_view> rows;
  for (std::size_t r = 0; r < n_rows(tensor); ++r)
    rows.push_back(data_of(open, tensor).substr(r * stride, stride));
  std::ranges::sort(rows);
  return rows;
}

bool is_transposed(const OpenGguf& a, const GgufTensor& x, const OpenGguf& b, const GgufTensor& y) {
  if (x.n_dims != 2 || y.n_dims != 2 || x.dims[0] != y.dims[1] || x.dims[1] != y.dims[0] ||
      x.n_elements > kMostTransposed)
    return false;
  std::vector<std::vector<float>> columns;  // of x
  for (std::size_t r = 0; r < n_rows(x); ++r) columns.push_back(row_of(a, x, r));
  for (std::size_t r = 0; r < n_rows(y); ++r) {
    const std::vector<float> row = row_of(b, y, r);
    for (std::size_t c = 0; c < row.size(); ++c)
      if (columns[c][r] != row[c]) return false;
  }
  return true;
}

/// The factor of the least squared error, if there is nearly none left.
std::optional<double> factor_of(const OpenGguf& a, const GgufTensor& x, const OpenGguf& b,
                                const GgufTensor& y) {
  double xx = 0;
  double xy = 0;
  double yy = 0;
  for (std::size_t r = 0; r < n_rows(x); ++r) {
    const std::vector<float> p = row_of(a, x, r);
    const std::vector<float> q = row_of(b, y, r);
    for (std::size_t i = 0; i < p.size(); ++i) {
      xx += double{p[i]} * double{p[i]};
      xy += double{p[i]} * double{q[i]};
      yy += double{q[i]} * double{q[i]};
    }
  }
  const double factor = xy / xx;
  // sum (y - factor x)^2
  if (!(yy - factor * xy <= kNoise * yy) || std::abs(factor - 1) < 1e-3) return std::nullopt;
  return factor;
}

}  // namespace

std::string likeness(const OpenGguf& a, const GgufTensor& x, const OpenGguf& b, const GgufTensor& y,
                     std::span<const GgufTensor* const> others) {
  for (const GgufTensor* z : others) {
    const GgufTensor* in_b = b.gguf.find_tensor(z->name);
    if (z == &x || in_b == nullptr || !same_form(*z, y) || data_of(a, *z) != data_of(b, y))
      continue;
    const bool exchanged = same_form(*in_b, x) && data_of(b, *in_b) == data_of(a, x);
    return fmt::format("{} {}", exchanged ? "exchanged with" : "the bytes of", shown(z->name));
  }
  if (is_transposed(a, x, b, y)) return "transposed";
  if (x.dims != y.dims) return "";
  if (x.type == y.type && n_rows(x) > 1 && sorted_rows(a, x) == sorted_rows(b, y))
    return "the same rows in another order";
  const auto factor = factor_of(a, x, b, y);
  return factor ? fmt::format("{:.6g} times the first", *factor) : "";
}

}  // namespace llm
