#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/gguf/gguf_file.h"
#include "quant/formats/block_traits.h"

namespace llm {

/// A word of llmquant's TYPE argument: one type for most matrices and, for the K mixes, more bits
/// where they help most.
struct Recipe {
  std::string_view name;
  WeightType base;
  std::uint32_t file_type;  ///< general.file_type; ids of llama.cpp's llama_ftype
};

/// In the order they are listed to users.
std::span<const Recipe> all_recipes();
/// The recipe called `name` (case-insensitive), or nullptr. Q3_K, Q4_K and Q5_K mean their _M.
const Recipe* find_recipe(std::string_view name);

/// Whether a matrix becomes much worse in `type` without importances (docs/quantization.md). The
/// types are those for which llama-quantize demands them.
bool requires_importance(WeightType type, std::string_view tensor);
/// Embeddings, which nothing is multiplied with, and the output matrix, which llama-imatrix leaves
/// out unless it is told to.
bool may_lack_importance(std::string_view tensor);

/// What the mixes depend on.
struct ModelShape {
  std::uint64_t n_layers = 0;
  std::uint64_t heads_per_kv_head = 1;
  bool tied_output = false;  ///< no output.weight: token_embd.weight is the output matrix too
  std::uint64_t n_experts = 0;
  bool has_importance = false;  ///< --imatrix
};
/// Reads it from metadata and tensor names. Absent keys give the defaults above.
ModelShape model_shape(const GgufFile& gguf);

/// Whether recipes apply to a tensor: matrices called *.weight, but not norms or expert routers.
/// Every other tensor keeps its type.
bool is_recipe_tensor(const GgufTensor& tensor);

/// The type that `recipe` gives a tensor with is_recipe_tensor(), before fallback_type(). The rules
/// are those of llama.cpp's llama-quantize for Llama models (docs/quantization.md), so that a name
/// means the same mix everywhere.
WeightType recipe_type(const Recipe& recipe, const ModelShape& shape, const GgufTensor& tensor);

/// `type`, or what takes its place when rows of n_cols are not whole blocks of it: the nearest type
/// with blocks of 32, then F16.
WeightType fallback_type(WeightType type, std::uint64_t n_cols);

}  // namespace llm
