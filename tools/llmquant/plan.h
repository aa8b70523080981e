#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/gguf/gguf_file.h"
#include "engine/gguf/gguf_writer.h"
#include "quant/formats/block_traits.h"
#include "tools/llmquant/recipe.h"

namespace llm {

struct PlanOptions {
  const Recipe* recipe = nullptr;
  bool pure = false;                      ///< the recipe's base type for every recipe tensor
  bool allow_requantize = false;          ///< convert from quantized types too
  std::vector<std::string> tensor_types;  ///< REGEX=TYPE, the first that matches a name counts
};

/// What becomes of one tensor.
struct TensorPlan {
  const GgufTensor* tensor;
  WeightType target;
  WeightType wanted;    ///< before fallback_type()
  std::uint64_t bytes;  ///< in the output
};

/// The plan for every tensor, in file order.
/// Errors: kUsage for a REGEX=TYPE that cannot be read, names a type that cannot be made, or
/// matches no tensor; kUnsupported for a part of a split model, and for a quantized tensor that
/// would change its type without allow_requantize.
Result<std::vector<TensorPlan>> make_plan(const GgufFile& gguf, const PlanOptions& options);

/// Metadata and tensor descriptions of the output: all entries are kept, general.file_type and
/// general.quantization_version are set.
GgufWriter make_writer(const GgufFile& gguf, const std::vector<TensorPlan>& plan,
                       std::uint32_t file_type);

}  // namespace llm
