#include "quant/formats/quantize/quantize_row.h"
#include "tests/support/test.h"
#include "tools/llmquant/allocation.h"
#include "tools/llmquant/recipe.h"

namespace llm {
namespace {

GgufTensor matrix(std::string_view name, std::uint64_t n_cols = 2048) {
  GgufTensor tensor;
  tensor.name = name;
  tensor.n_dims = 2;
  tensor.dims = {n_cols, 64, 1, 1};
  return tensor;
}

/// The type a recipe gives `part` of `layer` in a model of the shape of TinyLlama 1.1B.
WeightType type_of(std::string_view recipe, std::uint64_t layer, std::string_view part,
                   const ModelShape& shape = {22, 8, false}) {
  const std::string name = "blk." + std::to_string(layer) + "." + std::string(part) + ".weight";
  return recipe_type(*find_recipe(recipe), shape, matrix(name));
}

std::set<std::uint64_t> layers_with(std::string_view recipe, std::string_view part, WeightType type,
                                    const ModelShape& shape = {22, 8, false}) {
  std::set<std::uint64_t> layers;
  for (std::uint64_t layer = 0; layer < shape.n_layers; ++layer) {
    if (type_of(recipe, layer, part, shape) == type) layers.insert(layer);
  }
  return layers;
}

// The expectations are what llama-quantize printed for a file of TinyLlama's shape.
TEST_CASE("mixes give the layers of llama-quantize more bits", "[tools][llmquant]") {
  const std::set<std::uint64_t> more = {0, 1, 4, 7, 10, 13, 16, 19, 20, 21};
  for (const char* part : {"attn_v", "ffn_down"}) {
    CHECK(layers_with("Q4_K_M", part, WeightType::kQ6_K) == more);
    CHECK(layers_with("Q5_K_M", part, WeightType::kQ6_K) == more);
  }
  CHECK(layers_with("Q4_K_M", "attn_q", WeightType::kQ4_K).size() == 22);
  CHECK(layers_with("Q4_K_S", "attn_v", WeightType::kQ5_K) == std::set<std::uint64_t>{0, 1, 2, 3});
  CHECK(layers_with("Q4_K_S", "ffn_down", WeightType::kQ5_K) == std::set<std::uint64_t>{0, 1});
  CHECK(layers_with("Q3_K_M", "attn_v", WeightType::kQ5_K) == std::set<std::uint64_t>{0, 1});
  CHECK(layers_with("Q3_K_M", "attn_v", WeightType::kQ4_K).size() == 20);
  CHECK(layers_with("Q3_K_M", "ffn_down", WeightType::kQ5_K) == std::set<std::uint64_t>{0});
  CHECK(layers_with("Q3_K_M", "ffn_down", WeightType::kQ4_K).size() == 21);
  CHECK(layers_with("Q3_K_M", "attn_output", WeightType::kQ4_K).size() == 22);
  CHECK(layers_with("Q3_K_L", "attn_output", WeightType::kQ5_K).size() == 22);
  CHECK(layers_with("Q3_K_S", "ffn_down", WeightType::kQ3_K).size() == 22);
  CHECK(layers_with("Q2_K", "attn_v", WeightType::kQ4_K).size() == 22);
  CHECK(layers_with("Q2_K", "attn_v", WeightType::kQ3_K, {22, 1, false}).size() == 22);
  CHECK(layers_with("Q2_K", "ffn_down", WeightType::kQ3_K).size() == 22);
  CHECK(layers_with("Q2_K", "ffn_up", WeightType::kQ2_K).size() == 22);
  CHECK(layers_with("Q4_0", "ffn_down", WeightType::kQ4_0).size() == 22);
  CHECK(layers_with("Q3_K_L", "attn_qkv", WeightType::kQ4_K).size() == 22);
  CHECK(layers_with("Q4_K_M", "attn_qkv", WeightType::kQ5_K).size() == 22);
  CHECK(layers_with("Q5_K_M", "attn_qkv", WeightType::kQ6_K).size() == 22);
  CHECK(layers_with("Q4_K_S", "attn_qkv", WeightType::kQ4_K).size() == 22);
  for (const WeightType type : {WeightType::kIQ4_NL, WeightType::kIQ4_XS}) {
    const std::string name(block_traits(type).name);
    CHECK(layers_with(name, "attn_v", WeightType::kQ5_K).size() == 22);
    CHECK(layers_with(name, "attn_v", type, {22, 1, false}).size() == 22);
    CHECK(layers_with(name, "ffn_down", WeightType::kQ5_K) == std::set<std::uint64_t>{0, 1});
    CHECK(layers_with(name, "ffn_up", type).size() == 22);
  }
  // 80 layers are Llama 70B.
  CHECK(layers_with("Q4_K_S", "attn_v", WeightType::kQ5_K, {80, 8, false}).size() == 80);
}

TEST_CASE("output and embedding follow whether they are tied", "[tools][llmquant]") {
  const ModelShape separate{22, 8, false};
  const ModelShape tied{22, 8, true};
  const GgufTensor embedding = matrix("token_embd.weight");
  for (const char* name :
       {"Q4_0", "Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_S", "Q6_K", "IQ4_NL", "IQ4_XS"}) {
    const Recipe& recipe = *find_recipe(name);
    CAPTURE(name);
    CHECK(recipe_type(recipe, separate, matrix("output.weight")) == WeightType::kQ6_K);
    CHECK(recipe_type(recipe, separate, embedding) == recipe.base);
    CHECK(recipe_type(recipe, tied, embedding) == WeightType::kQ6_K);
  }
  const Recipe& q8 = *find_recipe("Q8_0");
  CHECK(recipe_type(q8, separate, matrix("output.weight")) == WeightType::kQ8_0);
  CHECK(recipe_type(*find_recipe("Q4_K_M"), separate, matrix("output.weight", 320)) ==
        WeightType::kQ8_0);
  CHECK(recipe_type(*find_recipe("MXFP4"), separate, matrix("output.weight")) == WeightType::kQ8_0);
  CHECK(recipe_type(*find_recipe("F16"), tied, embedding) == WeightType::kF16);
  CHECK(recipe_type(*find_recipe("Q1_0"), separate, embedding) == WeightType::kQ1_0);
  CHECK(recipe_type(*find_recipe("Q2_0"), separate, embedding) == WeightType::kQ4_K);
  CHECK(recipe_type(*find_recipe("Q2_0"), tied, embedding) == WeightType::kQ6_K);
}

TEST_CASE("MXFP4_MOE is for the matrices of experts alone", "[tools][llmquant]") {
  const ModelShape shape{22, 8, false};
  GgufTensor experts = matrix("blk.3.ffn_down_exps.weight");
  experts.n_dims = 3;
  experts.dims[2] = 8;
  for (const char* name : {"MXFP4", "MXFP4_MOE"}) {
    const Recipe& recipe = *find_recipe(name);
    const auto of_others = recipe.name == "MXFP4" ? WeightType::kMXFP4 : WeightType::kQ8_0;
    CAPTURE(name);
    CHECK(recipe_type(recipe, shape, experts) == WeightType::kMXFP4);
    CHECK(recipe_type(recipe, shape, matrix("blk.3.ffn_down.weight")) == of_others);
    CHECK(recipe_type(recipe, shape, matrix("token_embd.weight")) == of_others);
  }
}

TEST_CASE("rows that are no whole blocks fall back", "[tools][llmquant]") {
  CHECK(fallback_type(WeightType::kQ4_K, 2048) == WeightType::kQ4_K);
  CHECK(fallback_type(WeightType::kQ2_K, 320) == WeightType::kQ4_0);
  CHECK(fallback_type(WeightType::kQ3_K, 320) == WeightType::kQ4_0);
  CHECK(fallback_type(WeightType::kQ2_0, 352) == WeightType::kQ4_0);
  CHECK(fallback_type(WeightType::kQ1_0, 320) == WeightType::kF16);
  CHECK(fallback_type(WeightType::kQ4_K, 320) == WeightType::kQ5_0);
  CHECK(fallback_type(WeightType::kQ5_K, 320) == WeightType::kQ5_1);
  CHECK(fallback_type(WeightType::kQ6_K, 320) == WeightType::kQ8_0);
  CHECK(fallback_type(WeightType::kIQ4_XS, 320) == WeightType::kIQ4_NL);
  CHECK(fallback_type(WeightType::kQ4_K, 100) == WeightType::kF16);
  CHECK(fallback_type(WeightType::kQ8_0, 100) == WeightType::kF16);
  CHECK(fallback_type(WeightType::kF32, 1) == WeightType::kF32);
}

TEST_CASE("recipes are found by name", "[tools][llmquant]") {
  CHECK(find_recipe("q4_k_m")->name == "Q4_K_M");
  CHECK(find_recipe("Q4_K")->name == "Q4_K_M");
  CHECK(find_recipe("Q5_K")->file_type == 17);
  CHECK(find_recipe("iq4_xs")->file_type == 30);
  CHECK(find_recipe("mxfp4_moe")->file_type == 38);
  CHECK(find_recipe("q1_0")->file_type == 40);
  CHECK(find_recipe("Q2_0")->file_type == 41);
  CHECK(find_recipe("Q7_K") == nullptr);
  CHECK(find_recipe("") == nullptr);
}

// As llama-quantize's source has it; compared with its --dry-run on three models.
TEST_CASE("mixes of codebooks give what llama-quantize gives", "[tools][llmquant]") {
  using enum WeightType;
  const ModelShape alone{22, 1, false};
  ModelShape weighted{22, 1, false};
  weighted.has_importance = true;
  const std::set<std::uint64_t> first = {0, 1};
  for (const char* name : {"IQ2_XXS", "IQ2_XS", "IQ1_S", "IQ1_M"}) {
    CAPTURE(name);
    CHECK(layers_with(name, "attn_v", kQ4_K).size() == 22);
    CHECK(layers_with(name, "attn_v", kQ2_K, alone).size() == 22);
    CHECK(layers_with(name, "ffn_down", kQ2_K) == first);
    CHECK(recipe_type(*find_recipe(name), alone, matrix("token_embd.weight")) == kQ2_K);
    CHECK(recipe_type(*find_recipe(name), alone, matrix("output.weight")) == kQ5_K);
  }
  CHECK(layers_with("IQ1_S", "attn_output", kIQ2_XXS).size() == 22);
  CHECK(layers_with("IQ2_S", "ffn_up", kIQ2_XS).size() == 22);
  CHECK(layers_with("IQ2_M", "ffn_up", kIQ2_S).size() == 22);
  CHECK(layers_with("IQ2_M", "ffn_down", kIQ3_S) == first);
  CHECK(layers_with("IQ2_M", "attn_output", kIQ3_S).size() == 22);
  CHECK(layers_with("IQ3_XXS", "attn_q", kIQ2_S).size() == 22);
  CHECK(layers_with("IQ3_XXS", "attn_v", kIQ3_S, alone).size() == 22);
  CHECK(layers_with("IQ3_XXS", "attn_v", kIQ3_XXS, weighted).size() == 22);
  CHECK(layers_with("IQ3_XXS", "ffn_down", kQ4_K) == first);
  CHECK(layers_with("IQ3_XXS", "ffn_down", kIQ3_XXS, weighted).size() == 22);
  CHECK(layers_with("IQ3_XS", "attn_k", kIQ3_XXS).size() == 22);
  CHECK(layers_with("IQ3_XS", "ffn_gate", kIQ3_S) == std::set<std::uint64_t>{0, 1, 19, 20, 21});
  CHECK(layers_with("IQ3_M", "attn_output", kQ4_K).size() == 22);
  CHECK(layers_with("IQ3_M", "ffn_down", kQ4_K) == first);
  CHECK(layers_with("IQ4_XS", "ffn_down", kIQ4_XS, weighted).size() == 22);
  CHECK(layers_with("Q4_0", "ffn_down", kQ4_1, weighted) == first);
  CHECK(layers_with("Q2_K_S", "attn_v", kQ4_K).size() == 22);
  CHECK(layers_with("Q2_K_S", "ffn_down", kQ4_K) == first);
  CHECK(recipe_type(*find_recipe("TQ2_0"), alone, matrix("token_embd.weight")) == kQ4_K);
  CHECK(fallback_type(kIQ3_S, 320) == kIQ4_NL);
  CHECK(fallback_type(kTQ1_0, 320) == kQ4_0);
}

TEST_CASE("types that become bad without importances require them", "[tools][llmquant]") {
  CHECK(requires_importance(WeightType::kIQ2_XS, "blk.0.ffn_up.weight"));
  CHECK_FALSE(requires_importance(WeightType::kIQ2_XS, "token_embd.weight"));
  CHECK_FALSE(requires_importance(WeightType::kIQ3_S, "blk.0.ffn_up.weight"));
}

TEST_CASE("types are taken where a byte lowers the noise most", "[tools][llmquant]") {
  using enum WeightType;
  std::vector<TensorChoices> tensors = {{0, 1, {{kQ2_K, 10, 8}, {kQ4_K, 20, 3}, {kQ8_0, 40, 1}}},
                                        {1, 10, {{kQ2_K, 10, 1}, {kQ4_K, 20, 0.4}}},
                                        {2, 1, {{kQ2_K, 2, 0.9}, {kQ4_K, 4, 0.1}}}};
  std::vector<std::uint64_t> steps;
  choose_types(tensors, [&](std::uint64_t bytes, double noise) {
    steps.push_back(bytes);
    if (steps.size() == 1) CHECK(noise == Approx(8 + 4 + 0.9));
    return bytes <= 44;
  });
  // 0.6 a byte of the second, 0.5 of the first, 0.4 of the third; then 0.1, too large.
  CHECK(steps == std::vector<std::uint64_t>{32, 42, 44, 64});
  CHECK(tensors[0].chosen == 1);
  CHECK(tensors[1].chosen == 1);
  CHECK(tensors[2].chosen == 1);
  CHECK(*parse_size("4.5bpw", 16) == 9);
  CHECK(*parse_size("1.5KiB", 16) == 1536);
  CHECK(*parse_size("2MB", 16) == 2000000);
  for (const char* text : {"", "x", "-1B", "4", "4 GB", "1e30B", "nanB"})
    CHECK(!parse_size(text, 16).ok());
}

TEST_CASE("norms, vectors and routers keep their type", "[tools][llmquant]") {
  CHECK(is_recipe_tensor(matrix("blk.0.ffn_up.weight")));
  CHECK_FALSE(is_recipe_tensor(matrix("blk.0.attn_norm.weight")));
  CHECK_FALSE(is_recipe_tensor(matrix("blk.0.ffn_gate_inp.weight")));
  CHECK_FALSE(is_recipe_tensor(matrix("blk.0.attn_q.bias")));
  GgufTensor vector = matrix("rope_freqs.weight");
  vector.n_dims = 1;
  CHECK_FALSE(is_recipe_tensor(vector));
}

}  // namespace
}  // namespace llm
