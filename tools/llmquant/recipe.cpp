#include "tools/llmquant/recipe.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/architecture.h"
#include "engine/model/tensor_name.h"

namespace llm {
namespace {

constexpr std::array kRecipes = {
    Recipe{"Q4_0", WeightType::kQ4_0, 2},        Recipe{"Q4_1", WeightType::kQ4_1, 3},
    Recipe{"Q5_0", WeightType::kQ5_0, 8},        Recipe{"Q5_1", WeightType::kQ5_1, 9},
    Recipe{"Q8_0", WeightType::kQ8_0, 7},        Recipe{"Q2_K", WeightType::kQ2_K, 10},
    Recipe{"Q2_K_S", WeightType::kQ2_K, 21},     Recipe{"Q3_K_S", WeightType::kQ3_K, 11},
    Recipe{"Q3_K_M", WeightType::kQ3_K, 12},     Recipe{"Q3_K_L", WeightType::kQ3_K, 13},
    Recipe{"Q4_K_S", WeightType::kQ4_K, 14},     Recipe{"Q4_K_M", WeightType::kQ4_K, 15},
    Recipe{"Q5_K_S", WeightType::kQ5_K, 16},     Recipe{"Q5_K_M", WeightType::kQ5_K, 17},
    Recipe{"Q6_K", WeightType::kQ6_K, 18},       Recipe{"IQ1_S", WeightType::kIQ1_S, 24},
    Recipe{"IQ1_M", WeightType::kIQ1_M, 31},     Recipe{"IQ2_XXS", WeightType::kIQ2_XXS, 19},
    Recipe{"IQ2_XS", WeightType::kIQ2_XS, 20},   Recipe{"IQ2_S", WeightType::kIQ2_XS, 28},
    Recipe{"IQ2_M", WeightType::kIQ2_S, 29},     Recipe{"IQ3_XXS", WeightType::kIQ3_XXS, 23},
    Recipe{"IQ3_XS", WeightType::kIQ3_S, 22},    Recipe{"IQ3_S", WeightType::kIQ3_S, 26},
    Recipe{"IQ3_M", WeightType::kIQ3_S, 27},     Recipe{"IQ4_NL", WeightType::kIQ4_NL, 25},
    Recipe{"IQ4_XS", WeightType::kIQ4_XS, 30},   Recipe{"TQ1_0", WeightType::kTQ1_0, 36},
    Recipe{"TQ2_0", WeightType::kTQ2_0, 37},     Recipe{"MXFP4", WeightType::kMXFP4, 38},
    Recipe{"MXFP4_MOE", WeightType::kMXFP4, 38}, Recipe{"NVFP4", WeightType::kNVFP4, 39},
    Recipe{"Q1_0", WeightType::kQ1_0, 40},       Recipe{"Q2_0", WeightType::kQ2_0, 41},
    Recipe{"F16", WeightType::kF16, 1},          Recipe{"BF16", WeightType::kBF16, 32},
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

bool is_one_of(const Recipe& recipe, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, recipe.name) != names.end();
}
bool is_iq4(const Recipe& recipe) { return is_one_of(recipe, {"IQ4_NL", "IQ4_XS"}); }
bool is_iq1(const Recipe& recipe) { return is_one_of(recipe, {"IQ1_S", "IQ1_M"}); }
/// The mixes of about two and a half bits.
bool is_higher_iq2(const Recipe& recipe) { return is_one_of(recipe, {"IQ2_S", "IQ2_M"}); }
bool is_iq1_or_iq2(const Recipe& recipe) {
  return is_iq1(recipe) || is_higher_iq2(recipe) || is_one_of(recipe, {"IQ2_XXS", "IQ2_XS"});
}
/// What the mixes of IQ1 and IQ2 give to the matrices that matter more.
WeightType better_than_iq2(const Recipe& recipe) {
  return is_higher_iq2(recipe) ? WeightType::kIQ3_S : WeightType::kQ2_K;
}

WeightType embedding_type(const Recipe& recipe) {
  if (is_iq1(recipe) || is_one_of(recipe, {"IQ2_XXS", "IQ2_XS"})) return WeightType::kQ2_K;
  if (is_higher_iq2(recipe) || recipe.name == "IQ3_XXS") return WeightType::kIQ3_S;
  if (is_one_of(recipe, {"TQ1_0", "TQ2_0", "Q2_0"})) return WeightType::kQ4_K;
  return recipe.base;
}

WeightType output_type(const Recipe& recipe, std::uint64_t n_cols) {
  const WeightType base = recipe.base;
  const bool is_whole = n_cols % block_traits(base).block_weights == 0;
  if (!is_whole || base == WeightType::kQ8_0 || base == WeightType::kMXFP4 ||
      base == WeightType::kNVFP4) {
    return WeightType::kQ8_0;
  }
  if (is_iq1_or_iq2(recipe) || recipe.name == "IQ3_XXS") return WeightType::kQ5_K;
  return WeightType::kQ6_K;
}

WeightType attn_v_type(const Recipe& recipe, const ModelShape& shape, std::uint64_t layer) {
  WeightType type = recipe.base;
  const bool shared = shape.heads_per_kv_head >= 4;
  if (is_iq1_or_iq2(recipe)) {
    return shared || shape.n_experts >= 4 ? WeightType::kQ4_K : better_than_iq2(recipe);
  }
  if (recipe.name == "Q2_K") {
    type = shared ? WeightType::kQ4_K : WeightType::kQ3_K;
  } else if (recipe.name == "IQ3_M" ||
             (shared && is_one_of(recipe, {"Q2_K_S", "IQ3_XXS", "IQ3_XS", "IQ3_S"}))) {
    type = WeightType::kQ4_K;
  } else if (recipe.name == "IQ3_XXS") {
    type = shape.has_importance ? WeightType::kIQ3_XXS : WeightType::kIQ3_S;
  } else if (recipe.name == "Q3_K_M") {
    type = layer < 2 ? WeightType::kQ5_K : WeightType::kQ4_K;
  } else if (recipe.name == "Q3_K_L") {
    type = WeightType::kQ5_K;
  } else if (recipe.name == "Q4_K_S" && layer < 4) {
    type = WeightType::kQ5_K;
  } else if (is_iq4(recipe) && shared) {
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

WeightType attn_qkv_type(const Recipe& recipe, const ModelShape& shape, std::uint64_t layer) {
  if (is_iq1_or_iq2(recipe) || recipe.base == WeightType::kIQ3_S || recipe.name == "IQ3_XXS" ||
      recipe.name == "Q2_K_S")
    return attn_v_type(recipe, shape, layer);
  if (recipe.name == "Q3_K_M" || recipe.name == "Q3_K_L") return WeightType::kQ4_K;
  if (recipe.name == "Q4_K_M") return WeightType::kQ5_K;
  return recipe.name == "Q5_K_M" ? WeightType::kQ6_K : recipe.base;
}

WeightType ffn_down_type(const Recipe& recipe, const ModelShape& shape, std::uint64_t layer) {
  const bool is_first_eighth = layer < shape.n_layers / 8;
  if (is_iq1_or_iq2(recipe)) return is_first_eighth ? better_than_iq2(recipe) : recipe.base;
  if (recipe.name == "Q2_K") return WeightType::kQ3_K;
  if (recipe.name == "IQ3_XXS" && !shape.has_importance) {
    return is_first_eighth ? WeightType::kQ4_K : WeightType::kQ3_K;
  }
  if (is_first_eighth && is_one_of(recipe, {"Q2_K_S", "IQ3_M"})) return WeightType::kQ4_K;
  if (is_first_eighth && shape.has_importance && is_one_of(recipe, {"Q4_0", "Q5_0"})) {
    return recipe.name == "Q4_0" ? WeightType::kQ4_1 : WeightType::kQ5_1;
  }
  if (recipe.name == "Q3_K_M") {
    return layer < shape.n_layers / 16 ? WeightType::kQ5_K : WeightType::kQ4_K;
  }
  if (recipe.name == "Q3_K_L") return WeightType::kQ5_K;
  if (is_first_eighth && (recipe.name == "Q4_K_S" || (is_iq4(recipe) && !shape.has_importance))) {
    return WeightType::kQ5_K;
  }
  if ((recipe.name == "Q4_K_M" || recipe.name == "Q5_K_M") &&
      uses_more_bits(layer, shape.n_layers)) {
    return WeightType::kQ6_K;
  }
  return recipe.base;
}

WeightType attn_output_type(const Recipe& recipe) {
  if (is_iq1(recipe)) return WeightType::kIQ2_XXS;
  if (is_higher_iq2(recipe) || recipe.name == "IQ3_XXS") return WeightType::kIQ3_S;
  if (recipe.name == "IQ3_M") return WeightType::kQ4_K;
  if (recipe.name == "Q2_K") return WeightType::kQ3_K;
  if (recipe.name == "Q3_K_M") return WeightType::kQ4_K;
  if (recipe.name == "Q3_K_L") return WeightType::kQ5_K;
  return recipe.base;
}

/// attn_q and attn_k.
WeightType attn_qk_type(const Recipe& recipe) {
  if (recipe.name == "IQ3_XS") return WeightType::kIQ3_XXS;
  return recipe.name == "IQ3_XXS" ? WeightType::kIQ2_S : recipe.base;
}

/// ffn_gate and ffn_up.
WeightType ffn_up_type(const Recipe& recipe, const ModelShape& shape, std::uint64_t layer) {
  const bool is_inner = layer >= shape.n_layers / 8 && layer < 7 * shape.n_layers / 8;
  return recipe.name == "IQ3_XS" && is_inner ? WeightType::kIQ3_XXS : recipe.base;
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

bool requires_importance(WeightType type, std::string_view tensor) {
  using enum WeightType;
  static constexpr std::array kTypes = {kIQ1_S, kIQ1_M, kIQ2_XXS, kIQ2_XS, kIQ2_S, kIQ3_XXS};
  return !may_lack_importance(tensor) && std::ranges::find(kTypes, type) != kTypes.end();
}

bool may_lack_importance(std::string_view tensor) {
  return tensor == "output.weight" || tensor.ends_with("token_embd.weight");
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
  shape.n_experts = number(keys.n_experts);
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
    return output_type(recipe, tensor.dims[0]);
  }
  if (name == "token_embd.weight" && recipe.name != "MXFP4_MOE") return embedding_type(recipe);
  if (recipe.name == "MXFP4_MOE" && tensor.dims[2] <= 1) return WeightType::kQ8_0;
  const auto layer = layer_of_tensor(name);
  if (!layer) return recipe.base;
  if (contains(name, "attn_v.weight")) return attn_v_type(recipe, shape, *layer);
  if (contains(name, "attn_qkv.weight")) return attn_qkv_type(recipe, shape, *layer);
  if (contains(name, "attn_q.weight") || contains(name, "attn_k.weight"))
    return attn_qk_type(recipe);
  if (contains(name, "ffn_down")) return ffn_down_type(recipe, shape, *layer);
  if (contains(name, "ffn_gate") || contains(name, "ffn_up"))
    return ffn_up_type(recipe, shape, *layer);
  if (contains(name, "attn_output.weight")) return attn_output_type(recipe);
  return recipe.base;
}

WeightType fallback_type(WeightType type, std::uint64_t n_cols) {
  const auto fits = [&](WeightType candidate) {
    return n_cols % block_traits(candidate).block_weights == 0;
  };
  using enum WeightType;
  static constexpr std::array kNearest = {
      std::pair(kQ2_K, kQ4_0),     std::pair(kQ3_K, kQ4_0),      std::pair(kQ2_0, kQ4_0),
      std::pair(kTQ1_0, kQ4_0),    std::pair(kTQ2_0, kQ4_0),     std::pair(kIQ1_S, kIQ4_NL),
      std::pair(kIQ1_M, kIQ4_NL),  std::pair(kIQ2_XXS, kIQ4_NL), std::pair(kIQ2_XS, kIQ4_NL),
      std::pair(kIQ2_S, kIQ4_NL),  std::pair(kIQ3_XXS, kIQ4_NL), std::pair(kIQ3_S, kIQ4_NL),
      std::pair(kIQ4_XS, kIQ4_NL), std::pair(kQ4_K, kQ5_0),      std::pair(kQ5_K, kQ5_1),
      std::pair(kQ6_K, kQ8_0)};
  if (fits(type)) return type;
  for (const auto& [large, small] : kNearest)
    if (large == type && fits(small)) return small;
  return WeightType::kF16;
}

}  // namespace llm
