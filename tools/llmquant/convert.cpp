#include "tools/llmquant/convert.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "base/thread_team.h"
#include "quant/formats/dequantize.h"
#include "quant/formats/finite.h"
#include "quant/formats/quantize/quantize_row.h"

namespace llm {
namespace {

/// Weights in a chunk: large enough to keep threads busy, small against any model.
constexpr std::size_t kChunkWeights = std::size_t{1} << 21;
/// Rows a thread takes at once.
constexpr std::size_t kRowGroup = 4;

struct Layout {
  WeightType from;
  WeightType to;
  std::size_t n_cols;
  std::size_t source_stride;  ///< bytes of a row
  std::size_t target_stride;
};

struct RowResult {
  ConversionError error;
  bool finite_source = true;
  bool finite_target = true;
};

/// Converts one row. `weights` and `back` are scratch of n_cols.
RowResult convert_row(const Layout& layout, std::span<const std::byte> source,
                      std::span<std::byte> target, std::span<float> weights,
                      std::span<float> back) {
  RowResult result;
  contract::dequantize_row(layout.from, source, weights);
  result.finite_source =
      !first_nonfinite_block(WeightType::kF32, std::as_bytes(weights)).has_value();
  if (!result.finite_source) return result;
  quantize_row(layout.to, weights, target);
  result.finite_target = !first_nonfinite_block(layout.to, target).has_value();
  contract::dequantize_row(layout.to, target, back);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double w = static_cast<double>(weights[i]);
    const double difference = static_cast<double>(back[i]) - w;
    result.error.squares += difference * difference;
    result.error.power += w * w;
    result.error.largest = std::max(result.error.largest, std::abs(difference));
  }
  return result;
}

/// Rows [0, results.size()) of a chunk, spread over threads by a shared counter: which thread takes
/// a row does not change what is computed of it.
void convert_chunk(const Layout& layout, std::span<const std::byte> source,
                   std::span<std::byte> target, std::span<RowResult> results, int n_threads) {
  std::atomic<std::size_t> next{0};
  run_parallel(n_threads, [&](Worker) {
    std::vector<float> weights(layout.n_cols);
    std::vector<float> back(layout.n_cols);
    for (std::size_t begin = next.fetch_add(kRowGroup); begin < results.size();
         begin = next.fetch_add(kRowGroup)) {
      const std::size_t end = std::min(begin + kRowGroup, results.size());
      for (std::size_t r = begin; r < end; ++r) {
        results[r] = convert_row(
            layout, source.subspan(r * layout.source_stride, layout.source_stride),
            target.subspan(r * layout.target_stride, layout.target_stride), weights, back);
      }
    }
  });
}

Error bad_row(const TensorPlan& plan, const Layout& layout, std::span<const std::byte> row,
              std::size_t index, const RowResult& result) {
  Error error{
      .code = ErrorCode::kNonFinite, .field = std::string(plan.tensor->name), .message = ""};
  if (result.finite_source) {
    error.message = fmt::format("found weights in row {} too large for {}, need smaller ones",
                                index, block_traits(plan.target).name);
    return error;
  }
  std::vector<float> weights(layout.n_cols);
  contract::dequantize_row(layout.from, row, weights);
  const auto bad = std::find_if(weights.begin(), weights.end(),
                                [](float weight) { return !std::isfinite(weight); });
  error.message = fmt::format("found {} in row {}, column {}, need finite weights", *bad, index,
                              bad - weights.begin());
  return error;
}

/// The tensor as it is, in pieces.
Result<ConversionError> copy_tensor(std::span<const std::byte> source, const ConvertHooks& hooks) {
  constexpr std::size_t kPiece = std::size_t{8} << 20;
  for (std::size_t at = 0; at < source.size() && !hooks.interrupted(); at += kPiece) {
    const auto piece = source.subspan(at, std::min(kPiece, source.size() - at));
    LLM_RETURN_IF_ERROR(hooks.sink(piece));
    hooks.done(piece);
  }
  return ConversionError{};
}

}  // namespace

Result<ConversionError> convert_tensor(const TensorPlan& plan, std::span<const std::byte> source,
                                       int n_threads, const ConvertHooks& hooks) {
  if (plan.target == plan.tensor->type) return copy_tensor(source, hooks);
  const auto n_cols = static_cast<std::size_t>(plan.tensor->dims[0]);
  const auto n_rows = static_cast<std::size_t>(plan.tensor->n_elements) / n_cols;
  const Layout layout{plan.tensor->type, plan.target, n_cols, row_bytes(plan.tensor->type, n_cols),
                      row_bytes(plan.target, n_cols)};
  const std::size_t chunk_rows = std::clamp<std::size_t>(kChunkWeights / n_cols, 1, n_rows);
  std::vector<std::byte> target(chunk_rows * layout.target_stride);
  std::vector<RowResult> results(chunk_rows);
  ConversionError total;
  for (std::size_t first = 0; first < n_rows && !hooks.interrupted(); first += chunk_rows) {
    const std::size_t rows = std::min(chunk_rows, n_rows - first);
    const auto used = source.subspan(first * layout.source_stride, rows * layout.source_stride);
    const auto made = std::span(target).first(rows * layout.target_stride);
    convert_chunk(layout, used, made, std::span(results).first(rows), n_threads);
    for (std::size_t r = 0; r < rows; ++r) {
      const RowResult& result = results[r];
      if (!result.finite_source || !result.finite_target) {
        return bad_row(plan, layout, used.subspan(r * layout.source_stride, layout.source_stride),
                       first + r, result);
      }
      total.squares += result.error.squares;
      total.power += result.error.power;
      total.largest = std::max(total.largest, result.error.largest);
    }
    LLM_RETURN_IF_ERROR(hooks.sink(made));
    hooks.done(used);
  }
  return total;
}

}  // namespace llm
