#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/result.h"
#include "engine/gguf/gguf_writer.h"
#include "tools/llmquant/plan.h"

namespace llm {

/// How far the stored weights are from the source's.
struct ConversionError {
  double squares = 0.0;           ///< sum of (stored - source)^2
  double power = 0.0;             ///< sum of source^2
  double largest = 0.0;           ///< max |stored - source|
  double weighted_squares = 0.0;  ///< as squares and power, each times the weight's importance
  double weighted_power = 0.0;

  /// squares / power; 0 for all-zero weights stored as such.
  double nmse() const { return power > 0.0 ? squares / power : squares; }
  /// The same of the product with the activations that the importances are of, if their columns are
  /// independent; nmse() without importances.
  double noise() const { return weighted_power > 0.0 ? weighted_squares / weighted_power : nmse(); }
  void add(const ConversionError& other);
};

/// Quantizes and reads back `back.size()` weights. @param importance  of each; empty: all the same
ConversionError quantize_and_compare(WeightType type, std::span<const float> weights,
                                     std::span<const float> importance, std::span<std::byte> target,
                                     std::span<float> back);

/// What convert_tensor() calls between its steps.
struct ConvertHooks {
  ByteSink sink;                                         ///< takes the output, in order
  std::function<void(std::span<const std::byte>)> done;  ///< a part of the source was used up
  std::function<bool()> interrupted;                     ///< true: stop soon
};

/// Converts one tensor in chunks of blocks, so that memory stays at a few MiB whatever its size and
/// the length of its rows. Tiles of them are spread over threads; bytes and error are the same for
/// any number of threads.
/// @param source  the tensor's data
/// Errors: kNonFinite naming row and column of a NaN or infinite weight, or the row whose weights
/// are too large for the target; the sink's. When interrupted, returns what was converted so far.
Result<ConversionError> convert_tensor(const TensorPlan& plan, std::span<const std::byte> source,
                                       int n_threads, const ConvertHooks& hooks);

/// The table of a finished run: one line a tensor with type, size, NMSE and largest error, then
/// totals and bits per weight. Tensors that were copied have no error. With importances there is a
/// column of their noise.
/// @param errors  one a tensor of the plan, or none at all (dry run): the columns are left out
std::string report_table(std::span<const TensorPlan> plan, std::span<const ConversionError> errors);

}  // namespace llm
