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

/// Weights that one thread takes at once: whole blocks of every type, small enough to stay in the
/// cache. A tensor is a sequence of blocks, each quantized by itself, so rows may be cut.
constexpr std::size_t kTile = 8192;
/// Weights in a chunk: large enough to keep threads busy, small against any model.
constexpr std::size_t kChunk = 256 * kTile;

struct Layout {
  WeightType from;
  WeightType to;
  std::size_t n_cols;
};

struct TileResult {
  ConversionError error;
  bool finite_source = true;
  bool finite_target = true;
};

/// Where tile `index` of `n` weights begins and ends.
struct TileRange {
  std::size_t begin;
  std::size_t n;
};
TileRange tile_range(std::size_t index, std::size_t n_weights) {
  const std::size_t begin = index * kTile;
  return {begin, std::min(kTile, n_weights - begin)};
}

template <typename Byte>
std::span<Byte> tile_bytes(WeightType type, std::span<Byte> chunk, TileRange tile) {
  return chunk.subspan(row_bytes(type, tile.begin), row_bytes(type, tile.n));
}

/// Converts one tile. `weights` and `back` are scratch of its size.
TileResult convert_tile(const Layout& layout, std::span<const std::byte> source,
                        std::span<std::byte> target, std::span<float> weights,
                        std::span<const float> importance, std::span<float> back) {
  TileResult result;
  contract::dequantize_row(layout.from, source, weights);
  result.finite_source =
      !first_nonfinite_block(WeightType::kF32, std::as_bytes(weights)).has_value();
  if (!result.finite_source) return result;
  result.error = quantize_and_compare(layout.to, weights, importance, target, back);
  result.finite_target = !first_nonfinite_block(layout.to, target).has_value();
  return result;
}

/// The tiles of a chunk of `n_weights`, spread over threads by a shared counter: which thread takes
/// a tile does not change what is computed of it.
void convert_chunk(const TensorPlan& plan, const Layout& layout, std::size_t first,
                   std::size_t n_weights, std::span<const std::byte> source,
                   std::span<std::byte> target, std::span<TileResult> results, int n_threads) {
  std::atomic<std::size_t> next{0};
  run_parallel(n_threads, [&](Worker) {
    std::vector<float> weights(std::min(kTile, n_weights));
    std::vector<float> back(weights.size());
    std::vector<float> importance(plan.importance.empty() ? 0 : weights.size());
    for (std::size_t t = next++; t < results.size(); t = next++) {
      const TileRange tile = tile_range(t, n_weights);
      const auto of_tile = std::span(importance).first(std::min(importance.size(), tile.n));
      plan.copy_importance(first + tile.begin, of_tile);
      results[t] = convert_tile(
          layout, tile_bytes(layout.from, source, tile), tile_bytes(layout.to, target, tile),
          std::span(weights).first(tile.n), of_tile, std::span(back).first(tile.n));
    }
  });
}

/// What is wrong in a tile.
/// @param first_weight  index in the tensor of the tile's first
Error bad_tile(const TensorPlan& plan, const Layout& layout, std::span<const std::byte> source,
               std::span<const std::byte> target, std::size_t first_weight,
               const TileResult& result) {
  Error error{
      .code = ErrorCode::kNonFinite, .field = std::string(plan.tensor->name), .message = ""};
  if (result.finite_source) {
    const std::size_t block = first_nonfinite_block(layout.to, target).value_or(0);
    const std::size_t at = first_weight + block * block_traits(layout.to).block_weights;
    error.message = fmt::format("found weights in row {} too large for {}, need smaller ones",
                                at / layout.n_cols, block_traits(plan.target).name);
    return error;
  }
  std::vector<float> weights(source.size() / block_traits(layout.from).block_bytes *
                             block_traits(layout.from).block_weights);
  contract::dequantize_row(layout.from, source, weights);
  const auto bad = std::find_if(weights.begin(), weights.end(),
                                [](float weight) { return !std::isfinite(weight); });
  const std::size_t at = first_weight + static_cast<std::size_t>(bad - weights.begin());
  error.message = fmt::format("found {} in row {}, column {}, need finite weights", *bad,
                              at / layout.n_cols, at % layout.n_cols);
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

void ConversionError::add(const ConversionError& other) {
  squares += other.squares;
  power += other.power;
  weighted_squares += other.weighted_squares;
  weighted_power += other.weighted_power;
  largest = std::max(largest, other.largest);
}

ConversionError quantize_and_compare(WeightType type, std::span<const float> weights,
                                     std::span<const float> importance, std::span<std::byte> target,
                                     std::span<float> back) {
  quantize_row(type, weights, target, importance);
  contract::dequantize_row(type, target, back);
  ConversionError error;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double w = static_cast<double>(weights[i]);
    const double difference = static_cast<double>(back[i]) - w;
    error.squares += difference * difference;
    error.power += w * w;
    error.largest = std::max(error.largest, std::abs(difference));
    if (importance.empty()) continue;
    const double count = static_cast<double>(importance[i]);
    error.weighted_squares += count * difference * difference;
    error.weighted_power += count * w * w;
  }
  return error;
}

Result<ConversionError> convert_tensor(const TensorPlan& plan, std::span<const std::byte> source,
                                       int n_threads, const ConvertHooks& hooks) {
  if (plan.target == plan.tensor->type) return copy_tensor(source, hooks);
  const Layout layout{plan.tensor->type, plan.target,
                      static_cast<std::size_t>(plan.tensor->dims[0])};
  const auto n_weights = static_cast<std::size_t>(plan.tensor->n_elements);
  const std::size_t most = std::min(kChunk, n_weights);
  std::vector<std::byte> target(row_bytes(layout.to, most));
  std::vector<TileResult> results((most + kTile - 1) / kTile);
  ConversionError total;
  for (std::size_t first = 0; first < n_weights && !hooks.interrupted(); first += kChunk) {
    const std::size_t n = std::min(kChunk, n_weights - first);
    const auto used = source.subspan(row_bytes(layout.from, first), row_bytes(layout.from, n));
    const auto made = std::span(target).first(row_bytes(layout.to, n));
    const auto tiles = std::span(results).first((n + kTile - 1) / kTile);
    convert_chunk(plan, layout, first, n, used, made, tiles, n_threads);
    for (std::size_t t = 0; t < tiles.size(); ++t) {
      const TileResult& result = tiles[t];
      if (!result.finite_source || !result.finite_target) {
        const TileRange tile = tile_range(t, n);
        return bad_tile(plan, layout, tile_bytes(layout.from, used, tile),
                        tile_bytes(layout.to, std::span<const std::byte>(made), tile),
                        first + tile.begin, result);
      }
      total.add(result.error);
    }
    LLM_RETURN_IF_ERROR(hooks.sink(made));
    hooks.done(used);
  }
  return total;
}

}  // namespace llm
