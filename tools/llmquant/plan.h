#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/gguf/gguf_file.h"
#include "engine/gguf/gguf_writer.h"
#include "engine/gguf/importance_matrix.h"
#include "quant/formats/block_traits.h"
#include "tools/llmquant/recipe.h"

namespace llm {

struct PlanOptions {
  const Recipe* recipe = nullptr;
  bool any_type = false;                  ///< types of free tensors are chosen later
  bool pure = false;                      ///< the recipe's base type for every recipe tensor
  bool leave_output = false;              ///< output.weight keeps its type
  bool allow_requantize = false;          ///< convert from quantized types too
  bool allow_unweighted = false;          ///< matrices that should have importances may have none
  std::string output_type;                ///< of output.weight, or the tied embedding; empty: none
  std::string embedding_type;             ///< of token_embd.weight; empty: none
  std::vector<std::string> tensor_types;  ///< REGEX=TYPE, the first that matches a name counts
  std::string pruned_layers;              ///< their numbers with commas between
  const ImportanceMatrix* importance = nullptr;
  std::string importance_file;  ///< what errors about it and the output's metadata call it
};

/// What becomes of one tensor.
struct TensorPlan {
  const GgufTensor* tensor;
  std::string name;  ///< in the output
  WeightType target;
  WeightType wanted;    ///< before fallback_type()
  std::uint64_t bytes;  ///< in the output
  bool is_free;         ///< the recipe chose the type, no option that names tensors
  /// What the error of a weight matters, of each column of each matrix; empty: all the same.
  std::vector<float> importance = {};

  void set_target(WeightType type);
  /// The importance of weights from `first` on into all of `out`; nothing if there is none.
  void copy_importance(std::size_t first, std::span<float> out) const;
};

/// The plan for every tensor of the output, in file order.
/// Errors: kUsage for options that cannot be read, name types that cannot be made, tensors or
/// layers that are not there, or all layers, and for types that require importances where there are
/// none (requires_importance()); kUnsupported for a part of a split model, and for a quantized
/// tensor that would change its type without allow_requantize; those of Importance::means().
Result<std::vector<TensorPlan>> make_plan(const GgufFile& gguf, const PlanOptions& options);

/// Metadata and tensor descriptions of the output: all entries are kept, general.file_type and
/// general.quantization_version are set. Without pruned layers the number of layers is the lower
/// one, and arrays with an element for each layer lose theirs.
/// Where importances came from is named as llama-quantize does.
GgufWriter make_writer(const GgufFile& gguf, const std::vector<TensorPlan>& plan,
                       const PlanOptions& options, std::uint32_t file_type);

}  // namespace llm
