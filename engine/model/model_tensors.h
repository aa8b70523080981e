#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/gguf/gguf_file.h"
#include "engine/model/hyper_parameters.h"
#include "engine/model/model_parts.h"
#include "quant/formats/block_traits.h"

namespace llm {

/// One tensor of the file as a matrix: `n_rows` outputs (GGUF ne[1], times ne[2] of matrices one
/// after the other) by `n_cols` inputs (ne[0], contiguous). A vector has n_rows = 1. The bytes
/// belong to the file's mapping.
struct TensorView {
  std::string name;  ///< empty: the file has no such tensor
  WeightType type = WeightType::kF32;
  std::size_t n_rows = 0;
  std::size_t n_cols = 0;
  std::size_t first_row = 0;  ///< of the rows in the file's tensor, which may hold those of others
  std::span<const std::byte> data;  ///< those rows; of heads in turn with others, all (file_row())
  /// Of a matrix: factors of its products, one, or one for each of n_rows / scales.size() rows;
  /// finite. Empty: the file has none.
  std::vector<float> scales = {};

  bool empty() const { return name.empty(); }
};

using LayerTensors = LayerParts<TensorView, TensorView>;

/// Every tensor the forward pass needs, with checked shapes and types.
struct ModelTensors : ModelParts<TensorView, TensorView> {
  const TensorView& output() const { return own_output.empty() ? token_embd : own_output; }
};

/// Finds the tensors of kTensorRoles in `gguf` and checks shapes and types against `config`.
/// Tensors that would change the result but are not computed here are refused: all of a layer, and
/// some outside (experts, biases where the architecture has none, ...). Those of images and sounds
/// are left alone; others are counted in a warning, or refused when `strict`.
/// Errors: kMalformed for absent or misshapen tensors, kUnsupported for types and refused tensors.
Result<ModelTensors> bind_tensors(const GgufFile& gguf, const HyperParameters& config, bool strict,
                                  std::vector<std::string>& warnings);

}  // namespace llm
