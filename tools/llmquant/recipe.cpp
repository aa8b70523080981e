#include "tools/llmquant/recipe.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <string>
#include <utility>

#include "engine/model/architecture.h"
#include "engine/model/tensor_name.h"
#include "quant/formats/quantize/quantize_row.h"

namespace llm {
namespace {

constexpr std::array kRecipes = {
    Recipe{"Q4_0", WeightType::kQ4_0, 2},      Recipe{"Q4_1", WeightType::kQ4_1, 3},
    Recipe{"Q5_0", WeightType::kQ5_0, 8},      Recipe{"Q5_1", WeightType::kQ5_1, 9},
    Recipe{"Q8_0", WeightType::kQ8_0, 7},      Recipe{"Q2_K", WeightType::kQ2_K, 10},
    Recipe{"Q3_K_S", WeightType::kQ3_K, 11},   Recipe{"Q3_K_M", WeightType::kQ3_K, 12},
    Recipe{"Q3_K_L", WeightType::kQ3_K, 13},   Recipe{"Q4_K_S", WeightType::kQ4_K, 14},
    Recipe{"Q4_K_M", WeightType::kQ4_K, 15},   Recipe{"Q5_K_S", WeightType::kQ5_K, 16},
    Recipe{"Q5_K_M", WeightType::kQ5_K, 17},   Recipe{"Q6_K", WeightType::kQ6_K, 18},
    Recipe{"IQ4_NL", WeightType::kIQ4_NL, 25}, Recipe{"IQ4_XS", WeightType::kIQ4_XS, 30},
    Recipe{"MXFP4", WeightType::kMXFP4, 38},   Recipe{"MXFP4_MOE", WeightType::kMXFP4, 38},
    Recipe{"Q1_0", WeightType::kQ1_0, 40},     Recipe{"Q2_0", WeightType::kQ2_0, 41},
    Recipe{"F16", WeightType::kF16, 1},        Recipe{"BF16", WeightType::kBF16, 32},
    Recipe{"F32", WeightType::kF32, 0},
};

std::string upper(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return result;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// The layers that the _M mixes give more bits: the first and the last eighth and every third one
/// in between.
bool uses_more_bits(std::uint64_t layer, std::uint64_t n_layers) {
  const std::uint64_t eighth = n_layers / 8;
  return layer < eighth || layer >= 7 * n_layers / 8 || (layer - eighth) % 3 == 2;
}

WeightType output_type(WeightType base, std::uint64_t n_cols) {
  const bool is_whole = n_cols % block_traits(base).block_weights == 0;
  if (!is_whole || base == WeightType::kQ8_0 || base == WeightType::kMXFP4) {
    return WeightType::kQ8_0;
  }
  return WeightType::kQ6_K;
}

bool is_iq4(const Recipe& recipe) { return recipe.name == "IQ4_NL" || recipe.name == "IQ4_XS"; }

WeightType attn_v_type(const Recipe& recipe, const ModelShape& shape, std::uint64_t layer) {
  WeightType type = recipe.base;
  if (recipe.name == "Q2_K") {
    type = shape.heads_per_kv_head >= 4 ? WeightType::kQ4_K : WeightType::kQ3_K;
  } else if (recipe.name == "Q3_K_M") {
    type = layer < 2 ? WeightType::kQ5_K : WeightType::kQ4_K;
  } else if (recipe.name == "Q3_K_L") {
    type = WeightType::kQ5_K;
  } else if (recipe.name == "Q4_K_S" && layer < 4) {
    type = WeightType::kQ5_K;
  } else if (is_iq4(recipe) && shape.heads_per_kv_head >= 4) {
    type = WeightType::kQ5_K;
  } else if ((recipe.name == "Q4_K_M" || recipe.name == "Q5_K_M") &&
             uses_more_bits(layer, shape.n_layers)) {
    type = WeightType::kQ6_K;
  }
  // Llama 70B shares each KV head among eight heads: the matrix is small and matters much.
  const bool is_70b = shape.n_layers == 80;
  if (is_70b && (type == WeightType::kQ3_K || type == WeightType::kQ4_K)) return WeightType::kQ5_K;
  return type;
}

WeightType attn_qkv_type(const Recipe& recipe) {
  if (recipe.name == "Q3_K_M" || recipe.name == "Q3_K_L") return WeightType::kQ4_K;
  if (recipe.name == "Q4_K_M") return WeightType::kQ5_K;
  return recipe.name == "Q5_K_M" ? WeightType::kQ6_K : recipe.base;
}

WeightType ffn_down_type(const Recipe& recipe, const ModelShape& shape, std::uint64_t layer) {
  if (recipe.name == "Q2_K") return WeightType::kQ3_K;
  if (recipe.name == "Q3_K_M") {
    return layer < shape.n_layers / 16 ? WeightType::kQ5_K : WeightType::kQ4_K;
  }
  if (recipe.name == "Q3_K_L") return WeightType::kQ5_K;
  if ((recipe.name == "Q4_K_S" || is_iq4(recipe)) && layer < shape.n_layers / 8) {
    return WeightType::kQ5_K;
  }
  if ((recipe.name == "Q4_K_M" || recipe.name == "Q5_K_M") &&
      uses_more_bits(layer, shape.n_layers)) {
    return WeightType::kQ6_K;
  }
  return recipe.base;
}

WeightType attn_output_type(const Recipe& recipe) {
  if (recipe.name == "Q2_K") return WeightType::kQ3_K;
  if (recipe.name == "Q3_K_M") return WeightType::kQ4_K;
  if (recipe.name == "Q3_K_L") return WeightType::kQ5_K;
  return recipe.base;
}

}  // namespace

std::span<const Recipe> all_recipes() { return kRecipes; }

const Recipe* find_recipe(std::string_view name) {
  std::string wanted = upper(name);
  if (wanted == "Q3_K" || wanted == "Q4_K" || wanted == "Q5_K") wanted += "_M";
  const auto* found = std::find_if(kRecipes.begin(), kRecipes.end(),
                                   [&](const Recipe& recipe) { return recipe.name == wanted; });
  return found == kRecipes.end() ? nullptr : found;
}

std::string refusal_of_type(std::string_view name) {
  std::string text = fmt::format("found \"{}\"", name);
  const auto type = weight_type_from_name(name);
  if (!type || is_quantization_target(*type)) return text;
  text += fmt::format(", which can be read but not written ({})", [&] {
    switch (*type) {
      case WeightType::kTQ1_0:
      case WeightType::kTQ2_0:
        return "it is for models trained with ternary weights";
      case WeightType::kQ8_K:
        return "it is for activations";
      case WeightType::kNVFP4:
        return "it is for checkpoints that have it already";
      default:
        return "llmquant cannot search its codebook";
    }
  }());
  return text;
}

ModelShape model_shape(const GgufFile& gguf) {
  ModelShape shape;
  shape.tied_output = gguf.find_tensor("output.weight") == nullptr;
  const auto architecture = gguf.get_string_or("general.architecture", "");
  if (!architecture.ok()) return shape;
  const HyperParameterKeys keys;
  const auto number = [&](std::string_view key) -> std::uint64_t {
    const auto value = gguf.get_unsigned_or(fmt::format("{}.{}", *architecture, key), 0);
    return value.ok() ? *value : 0;
  };
  shape.n_layers = number(keys.n_layers);
  const std::uint64_t heads = number(keys.n_heads);
  const std::uint64_t kv_heads = number(keys.n_kv_heads);
  if (kv_heads > 0 && heads > kv_heads) shape.heads_per_kv_head = heads / kv_heads;
  return shape;
}

bool is_recipe_tensor(const GgufTensor& tensor) {
  return tensor.n_dims >= 2 && tensor.name.ends_with("weight") &&
         !contains(tensor.name, "_norm.weight") && !contains(tensor.name, "ffn_gate_inp") &&
         !contains(tensor.name, "ssm_conv1d.weight") &&
         !contains(tensor.name, "shortconv.conv.weight");
}

WeightType recipe_type(const Recipe& recipe, const ModelShape& shape, const GgufTensor& tensor) {
  if (block_traits(recipe.base).block_weights == 1) return recipe.base;
  const std::string_view name = tensor.name;
  if (name == "output.weight" || (shape.tied_output && name == "token_embd.weight")) {
    return output_type(recipe.base, tensor.dims[0]);
  }
  if (recipe.base == WeightType::kQ2_0 && name == "token_embd.weight") return WeightType::kQ4_K;
  if (recipe.name == "MXFP4_MOE" && tensor.dims[2] <= 1) return WeightType::kQ8_0;
  const auto layer = layer_of_tensor(name);
  if (!layer) return recipe.base;
  if (contains(name, "attn_v.weight")) return attn_v_type(recipe, shape, *layer);
  if (contains(name, "attn_qkv.weight")) return attn_qkv_type(recipe);
  if (contains(name, "ffn_down")) return ffn_down_type(recipe, shape, *layer);
  if (contains(name, "attn_output.weight")) return attn_output_type(recipe);
  return recipe.base;
}

WeightType fallback_type(WeightType type, std::uint64_t n_cols) {
  const auto fits = [&](WeightType candidate) {
    return n_cols % block_traits(candidate).block_weights == 0;
  };
  static constexpr std::array kNearest = {std::pair(WeightType::kQ2_K, WeightType::kQ4_0),
                                          std::pair(WeightType::kQ3_K, WeightType::kQ4_0),
                                          std::pair(WeightType::kQ2_0, WeightType::kQ4_0),
                                          std::pair(WeightType::kIQ4_XS, WeightType::kIQ4_NL),
                                          std::pair(WeightType::kQ4_K, WeightType::kQ5_0),
                                          std::pair(WeightType::kQ5_K, WeightType::kQ5_1),
                                          std::pair(WeightType::kQ6_K, WeightType::kQ8_0)};
  if (fits(type)) return type;
  for (const auto& [large, small] : kNearest)
    if (large == type && fits(small)) return small;
  return WeightType::kF16;
}

}  // namespace llm
