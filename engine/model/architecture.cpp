#include "engine/model/architecture.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>

#include "engine/model/tensor_roles.h"

namespace llm {
namespace {

// Keys of llama.cpp's hyper-parameters (src/llama-arch.cpp) that change what a layer computes.
constexpr std::array kKeysToRefuse = {
    RefusedKey{"logit_scale", "logits are not scaled here", {0, 1}},
    RefusedKey{"residual_scale", "the residual stream is not scaled here", {0, 1}},
    RefusedKey{"embedding_scale", "embeddings are not scaled here", {0, 1}},
    RefusedKey{"attention.scale", "scores are scaled by 1 / sqrt(head dim) here"},
    RefusedKey{"expert_shared_count", "experts that every token goes to are not computed"},
    RefusedKey{"expert_shared_feed_forward_length",
               "experts that every token goes to are not computed"},
    RefusedKey{"expert_group_count", "experts have no groups here", {0, 1}},
    RefusedKey{"leading_dense_block_count", "every layer has experts here"},
    RefusedKey{
        "interleave_moe_layer_step", "no layers without experts lie between others here", {0, 1}},
    RefusedKey{"attn_logit_softcapping", "scores are not capped here"},
    RefusedKey{"final_logit_softcapping", "logits are not capped here"},
    RefusedKey{"attention.shared_kv_layers", "each layer has keys and values of its own", {0, 0}},
    RefusedKey{"embedding_length_per_layer_input", "layers have no inputs of their own", {0, 0}},
    RefusedKey{"attention.clamp_kqv", "q, k and v are not clamped here"},
    RefusedKey{"attention.max_alibi_bias", "attention has no ALiBi here"},
    RefusedKey{"attention.causal", "attention is causal here", {1, 1}},
    RefusedKey{"attention.temperature_scale", "queries are not scaled by position here"},
    RefusedKey{"use_parallel_residual", "attention and feed-forward are not parallel here"},
    RefusedKey{"rope.scaling.yarn_ext_factor", "YaRN is computed in full here", {1, -1}},
    RefusedKey{"rope.scaling.yarn_log_multiplier", "magnitudes follow from the factor here"},
    RefusedKey{"rope.dimension_sections", "RoPE over several positions is not computed here"},
    RefusedKey{"n_deepstack_layers", "layers take nothing of images here", {0, 0}},
    RefusedKey{"expert_count", "this architecture has no experts"},
    RefusedKey{"rope.scaling.finetuned", "RoPE is always on here", {1, 1}, "granite"},
};
/// The elements of several arrays, one array after the other.
template <typename T, std::size_t... kSizes>
constexpr auto joined(const std::array<T, kSizes>&... parts) {
  std::array<T, (kSizes + ...)> all;
  auto end = all.begin();
  ((end = std::ranges::copy(parts, end).out), ...);
  return all;
}

// Keys that some architectures compute.
constexpr std::array kExpertKeys = {std::string_view("expert_count")};
constexpr std::array<std::string_view, 4> kScaleKeys = {"logit_scale", "residual_scale",
                                                        "embedding_scale", "attention.scale"};
// Files without experts have the width of the shared one, too.
constexpr auto kGraniteMoeKeys = joined(
    kScaleKeys, kExpertKeys, std::array{std::string_view("expert_shared_feed_forward_length")});
constexpr auto kGraniteHybridKeys =
    joined(kGraniteMoeKeys, std::array{std::string_view("rope.scaling.finetuned")});
constexpr std::array<std::string_view, 2> kMistral3Keys = {"attention.temperature_scale",
                                                           "rope.scaling.yarn_log_multiplier"};
// All positions of a token of text are equal, whatever the sections.
constexpr std::array kSectionKeys = {std::string_view("rope.dimension_sections")};
constexpr auto kQwen3VlKeys =
    joined(kSectionKeys, std::array{std::string_view("n_deepstack_layers")});
constexpr auto kQwen3VlMoeKeys = joined(kQwen3VlKeys, kExpertKeys);
constexpr auto kQwen35MoeKeys = joined(
    kSectionKeys, kExpertKeys, std::array{std::string_view("expert_shared_feed_forward_length")});
constexpr std::array<std::string_view, 3> kSharedMoeKeys = {"expert_count", "expert_shared_count",
                                                            "expert_shared_feed_forward_length"};
constexpr auto kDenseFirstKeys =
    joined(kSharedMoeKeys, std::array{std::string_view("leading_dense_block_count")});
constexpr auto kGlm4MoeKeys = joined(kDenseFirstKeys, kSectionKeys);
constexpr std::array<std::string_view, 2> kLfm2MoeKeys = {"expert_count",
                                                          "leading_dense_block_count"};
constexpr std::array<std::string_view, 4> kGemma4Keys = {
    "final_logit_softcapping", "attention.shared_kv_layers", "embedding_length_per_layer_input",
    "expert_count"};

constexpr std::array<std::string_view, 2> kGemma2Keys = {"attn_logit_softcapping",
                                                         "final_logit_softcapping"};

constexpr std::array kRopeScalings = {
    RopeScaling{.type = "none"},
    RopeScaling{.type = "linear", .divides_positions = true},
    RopeScaling{.type = "yarn", .divides_positions = true, .is_yarn = true},
    RopeScaling{.type = "longrope", .refused = "of files that have it only phi3 is known here"},
};
// The factors of LongRoPE are in a tensor.
constexpr std::array kPhi3Scalings = [] {
  auto scalings = kRopeScalings;
  scalings.back().refused = {};
  return scalings;
}();

constexpr std::array kQwen2Roles = {
    RoleNeed{"attn_q.bias", Need::kRequired},
    RoleNeed{"attn_k.bias", Need::kRequired},
    RoleNeed{"attn_v.bias", Need::kRequired},
};

constexpr auto kSeedOssRoles =
    joined(kQwen2Roles,
           std::array{RoleNeed{"ffn_norm.weight", Need::kRequired, "post_attention_norm.weight"}});

constexpr std::array kQwen3Roles = {
    RoleNeed{"attn_q_norm.weight", Need::kRequired},
    RoleNeed{"attn_k_norm.weight", Need::kRequired},
};

constexpr std::array kExpertBiasRoles = {RoleNeed{"exp_probs_b.bias", Need::kOptional}};
constexpr auto kQwen3BiasRoles = joined(kQwen3Roles, kExpertBiasRoles);

constexpr auto kLagunaRoles = joined(
    kQwen3Roles, std::array{RoleNeed{"attn_q_gate.weight", Need::kRequired, "attn_gate.weight"},
                            RoleNeed{"exp_probs_b.bias", Need::kRequired}});

// The larger model has norms of heads, the smaller none.
constexpr std::array kGlm4MoeRoles = {
    RoleNeed{"attn_q.bias", Need::kOptional},
    RoleNeed{"attn_k.bias", Need::kOptional},
    RoleNeed{"attn_v.bias", Need::kOptional},
    RoleNeed{"attn_q_norm.weight", Need::kOptional},
    RoleNeed{"attn_k_norm.weight", Need::kOptional},
    RoleNeed{"ffn_norm.weight", Need::kRequired, "post_attention_norm.weight"},
    RoleNeed{"exp_probs_b.bias", Need::kRequired},
};

constexpr std::array kGptOssRoles = {
    RoleNeed{"attn_q.bias", Need::kRequired},
    RoleNeed{"attn_k.bias", Need::kRequired},
    RoleNeed{"attn_v.bias", Need::kRequired},
    RoleNeed{"attn_sinks.weight", Need::kRequired},
    RoleNeed{"attn_output.bias", Need::kRequired},
    RoleNeed{"ffn_norm.weight", Need::kRequired, "post_attention_norm.weight"},
    RoleNeed{"ffn_gate_inp.bias", Need::kRequired},
    RoleNeed{"ffn_gate.bias", Need::kRequired, "ffn_gate_exps.bias"},
    RoleNeed{"ffn_up.bias", Need::kRequired, "ffn_up_exps.bias"},
    RoleNeed{"ffn_down.bias", Need::kRequired, "ffn_down_exps.bias"},
};

constexpr std::array kPhi3Roles = {
    RoleNeed{"attn_q.weight", Need::kRequired, "attn_qkv.weight"},
    RoleNeed{"attn_k.weight", Need::kRequired, "attn_qkv.weight"},
    RoleNeed{"attn_v.weight", Need::kRequired, "attn_qkv.weight"},
    RoleNeed{"ffn_gate.weight", Need::kRequired, "ffn_up.weight"},
    RoleNeed{"ffn_up.weight", Need::kRequired, "ffn_up.weight"},
    RoleNeed{"rope_freqs.weight", Need::kOptional, "rope_factors_long.weight"},
};

// The smaller model has the biases, the larger none.
constexpr std::array kGlm4Roles = {
    RoleNeed{"attn_q.bias", Need::kOptional},
    RoleNeed{"attn_k.bias", Need::kOptional},
    RoleNeed{"attn_v.bias", Need::kOptional},
    RoleNeed{"post_attention_norm.weight", Need::kRequired},
    RoleNeed{"post_ffw_norm.weight", Need::kRequired},
    RoleNeed{"ffn_gate.weight", Need::kRequired, "ffn_up.weight"},
    RoleNeed{"ffn_up.weight", Need::kRequired, "ffn_up.weight"},
};

constexpr std::array kGemma2Roles = {
    RoleNeed{"post_attention_norm.weight", Need::kRequired},
    RoleNeed{"post_ffw_norm.weight", Need::kRequired},
};

constexpr std::array kGemma3Roles = {
    RoleNeed{"attn_q_norm.weight", Need::kRequired},
    RoleNeed{"attn_k_norm.weight", Need::kRequired},
    RoleNeed{"post_attention_norm.weight", Need::kRequired},
    RoleNeed{"post_ffw_norm.weight", Need::kRequired},
};

// Norms of what layers add, and none of what they read.
constexpr std::array kPostNormRoles = {
    RoleNeed{"attn_q_norm.weight", Need::kRequired},
    RoleNeed{"attn_k_norm.weight", Need::kRequired},
    RoleNeed{"post_attention_norm.weight", Need::kRequired},
    RoleNeed{"post_ffw_norm.weight", Need::kRequired},
};

constexpr std::array kGemma4Roles = {
    RoleNeed{"attn_q_norm.weight", Need::kRequired},
    RoleNeed{"attn_k_norm.weight", Need::kRequired},
    RoleNeed{"post_attention_norm.weight", Need::kRequired},
    RoleNeed{"post_ffw_norm.weight", Need::kRequired},
    RoleNeed{"layer_output_scale.weight", Need::kRequired},
    RoleNeed{"rope_freqs.weight", Need::kRequired},
};

// The feed-forward beside the experts is the one that every row uses.
constexpr auto kGemma4MoeRoles = joined(
    kGemma4Roles, std::array{
                      RoleNeed{"ffn_gate.weight", Need::kRequired, "ffn_gate_up_exps.weight", true},
                      RoleNeed{"ffn_up.weight", Need::kRequired, "ffn_gate_up_exps.weight", true},
                      RoleNeed{"ffn_gate_shexp.weight", Need::kRequired, "ffn_gate.weight"},
                      RoleNeed{"ffn_up_shexp.weight", Need::kRequired, "ffn_up.weight"},
                      RoleNeed{"ffn_down_shexp.weight", Need::kRequired, "ffn_down.weight"},
                  });

constexpr std::array kQwen35Roles = {
    RoleNeed{"attn_q.weight", Need::kRequired, "attn_q.weight", true},
    RoleNeed{"attn_q_gate.weight", Need::kRequired, "attn_q.weight", true},
    RoleNeed{"attn_q_norm.weight", Need::kRequired},
    RoleNeed{"attn_k_norm.weight", Need::kRequired},
    RoleNeed{"ffn_norm.weight", Need::kRequired, "post_attention_norm.weight"},
};

constexpr auto kQwen3NextRoles = joined(
    kQwen35Roles, std::array{RoleNeed{"ssm_beta.weight", Need::kRequired, "ssm_ba.weight", true},
                             RoleNeed{"ssm_alpha.weight", Need::kRequired, "ssm_ba.weight", true}});

// One product gives b, c and x; modeling_lfm2.py.
constexpr std::array kLfm2Roles = {
    RoleNeed{"attn_q_norm.weight", Need::kRequired},
    RoleNeed{"attn_k_norm.weight", Need::kRequired},
    RoleNeed{"shortconv.b.weight", Need::kRequired, "shortconv.in_proj.weight"},
    RoleNeed{"shortconv.c.weight", Need::kRequired, "shortconv.in_proj.weight"},
    RoleNeed{"shortconv.x.weight", Need::kRequired, "shortconv.in_proj.weight"},
    RoleNeed{"output_norm.weight", Need::kRequired, "token_embd_norm.weight"},
};
constexpr auto kLfm2MoeRoles = joined(kLfm2Roles, kExpertBiasRoles);

// One product gives z, the convolution's channels and the time steps.
constexpr std::array kGraniteHybridRoles = {
    RoleNeed{"attn_gate.weight", Need::kRequired, "ssm_in.weight"},
    RoleNeed{"attn_qkv.weight", Need::kRequired, "ssm_in.weight"},
    RoleNeed{"ssm_alpha.weight", Need::kRequired, "ssm_in.weight"},
    RoleNeed{"ssm_conv1d.bias", Need::kOptional},
};

// modeling_granitemoehybrid.py; keys as in llama.cpp's src/models/granite-hybrid.cpp. Layers
// without KV heads are Mamba-2.
constexpr Architecture granite_hybrid(bool with_experts) {
  Architecture row{.name = "granitehybrid",
                   .may_lack_rope = true,
                   .has_scales = true,
                   .has_mambas = true,
                   .rope_scalings = kRopeScalings,
                   .computed_keys = kGraniteHybridKeys,
                   .roles = kGraniteHybridRoles};
  row.has_experts = row.has_shared_expert = with_experts;
  row.weighs_shared = !with_experts;
  return row;
}

// modeling_gemma4.py, the text model; keys as in llama.cpp's src/models/gemma4.cpp.
constexpr Architecture gemma4(bool with_experts) {
  Architecture row{.name = "gemma4",
                   .rope_pairs = RopePairs::kHalves,
                   .activation = Activation::kGeGluTanh,
                   .rope_theta = 1000000.0F,
                   .window_rope = WindowRope::kUnscaled,
                   .window_rope_theta = 10000.0F,
                   .scales_embedding = true,
                   .attention_scale = 1,
                   .has_value_norm = true,
                   .values_may_be_keys = true,
                   .window_period = 6,
                   .rope_scalings = kRopeScalings,
                   .computed_keys = kGemma4Keys,
                   .roles = kGemma4Roles};
  if (!with_experts) return row;
  row.keys.d_ff = "expert_feed_forward_length";
  row.keys.d_shared = "feed_forward_length";
  row.has_experts = row.has_shared_expert = row.has_ffn_norms = true;
  row.roles = kGemma4MoeRoles;
  return row;
}

// modeling_gemma4_assistant.py; keys as in llama.cpp's src/models/gemma4-assistant.cpp.
constexpr Architecture gemma4_assistant() {
  Architecture row = gemma4(false);
  row.name = "gemma4-assistant";
  row.scales_embedding = false;
  row.trunk = "gemma4";
  return row;
}

// Facts from transformers' modeling_llama.py, modeling_qwen2.py and modeling_qwen3.py;
// modeling_mistral.py is the first with a sliding window.
constexpr std::array kArchitectures = {
    Architecture{.name = "llama", .window_period = 1, .rope_scalings = kRopeScalings},
    // modeling_ministral3.py; llama.cpp's converter orders rows of q and k as of llama. Mistral
    // Small 3.1 and later have the name without the two keys.
    Architecture{.name = "mistral3",
                 .window_period = 1,
                 .rope_scalings = kRopeScalings,
                 .computed_keys = kMistral3Keys},
    // Facts from llama.cpp's conversion/internlm.py and minicpm.py, which order rows of q and k as
    // of llama. MiniCPM is Granite with scales that are named otherwise; older files lack them.
    Architecture{.name = "internlm2", .rope_scalings = kRopeScalings},
    Architecture{.name = "minicpm",
                 .has_scales = true,
                 .needs_scales = true,
                 .rope_scalings = kRopeScalings,
                 .computed_keys = kScaleKeys},
    // modeling_ernie4_5.py, whose pairs are neighbours, too.
    Architecture{.name = "ernie4_5", .rope_scalings = kRopeScalings},
    // modeling_ernie4_5_moe.py; a bias is added to probabilities of a softmax.
    Architecture{.name = "ernie4_5-moe",
                 .has_experts = true,
                 .has_dense_layers = true,
                 .has_shared_expert = true,
                 .counts_shared = true,
                 .weighs_shared = false,
                 .rope_scalings = kRopeScalings,
                 .computed_keys = kDenseFirstKeys,
                 .roles = kExpertBiasRoles},
    Architecture{.name = "qwen2",
                 .rope_pairs = RopePairs::kHalves,
                 .rope_scalings = kRopeScalings,
                 .roles = kQwen2Roles},
    // modeling_qwen2_vl.py and modeling_qwen2_5_vl.py, the text models.
    Architecture{.name = "qwen2vl",
                 .rope_pairs = RopePairs::kHalves,
                 .rope_scalings = kRopeScalings,
                 .computed_keys = kSectionKeys,
                 .roles = kQwen2Roles},
    Architecture{.name = "qwen3",
                 .rope_pairs = RopePairs::kHalves,
                 .rope_scalings = kRopeScalings,
                 .roles = kQwen3Roles},
    // modeling_qwen3_moe.py; the router's weights are renormalized in every published model.
    Architecture{.name = "qwen3moe",
                 .keys = {.d_ff = "expert_feed_forward_length"},
                 .rope_pairs = RopePairs::kHalves,
                 .has_experts = true,
                 .rope_scalings = kRopeScalings,
                 .computed_keys = kExpertKeys,
                 .roles = kQwen3Roles},
    // modeling_qwen3_vl.py and modeling_qwen3_vl_moe.py, the text models.
    Architecture{.name = "qwen3vl",
                 .rope_pairs = RopePairs::kHalves,
                 .rope_scalings = kRopeScalings,
                 .computed_keys = kQwen3VlKeys,
                 .roles = kQwen3Roles},
    Architecture{.name = "qwen3vlmoe",
                 .keys = {.d_ff = "expert_feed_forward_length"},
                 .rope_pairs = RopePairs::kHalves,
                 .has_experts = true,
                 .rope_scalings = kRopeScalings,
                 .computed_keys = kQwen3VlMoeKeys,
                 .roles = kQwen3Roles},
    // modeling_qwen2_moe.py; the router's weights are renormalized in no published model.
    Architecture{.name = "qwen2moe",
                 .keys = {.d_ff = "expert_feed_forward_length"},
                 .rope_pairs = RopePairs::kHalves,
                 .has_experts = true,
                 .weights_add_up = false,
                 .has_shared_expert = true,
                 .rope_scalings = kRopeScalings,
                 .computed_keys = kSharedMoeKeys,
                 .roles = kQwen2Roles},
    // modeling_olmoe.py; likewise. The experts' width is feed_forward_length.
    Architecture{.name = "olmoe",
                 .rope_pairs = RopePairs::kHalves,
                 .norms_rows = true,
                 .has_experts = true,
                 .weights_add_up = false,
                 .rope_scalings = kRopeScalings,
                 .computed_keys = kExpertKeys,
                 .roles = kQwen3Roles},
    // modeling_dots1.py.
    Architecture{.name = "dots1",
                 .rope_pairs = RopePairs::kHalves,
                 .has_experts = true,
                 .has_dense_layers = true,
                 .router = Router::kSigmoid,
                 .weights_add_up = false,
                 .has_shared_expert = true,
                 .counts_shared = true,
                 .weighs_shared = false,
                 .rope_scalings = kRopeScalings,
                 .computed_keys = kDenseFirstKeys,
                 .roles = kQwen3BiasRoles},
    // modeling_minimax_m2.py.
    Architecture{.name = "minimax-m2",
                 .keys = {.d_ff = "expert_feed_forward_length"},
                 .rope_pairs = RopePairs::kHalves,
                 .norms_rows = true,
                 .has_experts = true,
                 .router = Router::kSigmoid,
                 .rope_scalings = kRopeScalings,
                 .computed_keys = kExpertKeys,
                 .roles = kQwen3BiasRoles},
    // modeling_gpt_oss.py; post_attention_norm is the norm before the feed-forward.
    Architecture{.name = "gpt-oss",
                 .keys = {.d_ff = "expert_feed_forward_length"},
                 .rope_pairs = RopePairs::kHalves,
                 .activation = Activation::kSwiGluOai,
                 .rope_theta = 150000.0F,
                 .has_experts = true,
                 .window_period = 2,
                 .rope_scalings = kRopeScalings,
                 .yarn_rounds = false,
                 .computed_keys = kExpertKeys,
                 .roles = kGptOssRoles},
    // modeling_qwen3_5.py; post_attention_norm is the norm before the feed-forward. Norms' weights
    // in files hold 1 + w, and value heads are in another order than transformers'.
    Architecture{.name = "qwen35",
                 .rope_pairs = RopePairs::kHalves,
                 .full_attention_period = 4,
                 .output_gate = OutputGate::kSigmoid,
                 .rope_scalings = kRopeScalings,
                 .computed_keys = kSectionKeys,
                 .roles = kQwen35Roles},
    // modeling_qwen3_5_moe.py; the router's weights are always renormalized.
    Architecture{.name = "qwen35moe",
                 .keys = {.d_ff = "expert_feed_forward_length"},
                 .rope_pairs = RopePairs::kHalves,
                 .full_attention_period = 4,
                 .output_gate = OutputGate::kSigmoid,
                 .has_experts = true,
                 .has_shared_expert = true,
                 .rope_scalings = kRopeScalings,
                 .computed_keys = kQwen35MoeKeys,
                 .roles = kQwen35Roles},
    // modeling_qwen3_next.py; value heads are in transformers' order, unlike those of qwen35.
    Architecture{.name = "qwen3next",
                 .keys = {.d_ff = "expert_feed_forward_length"},
                 .rope_pairs = RopePairs::kHalves,
                 .full_attention_period = 4,
                 .groups_value_heads = true,
                 .output_gate = OutputGate::kSigmoid,
                 .has_experts = true,
                 .has_shared_expert = true,
                 .rope_scalings = kRopeScalings,
                 .computed_keys = kQwen35MoeKeys,
                 .roles = kQwen3NextRoles},
    // modeling_phi3.py. The long factors hold for every text, as long as a context is longer than
    // the original one.
    Architecture{.name = "phi3",
                 .rope_pairs = RopePairs::kHalves,
                 .window_period = 1,
                 .rope_scalings = kPhi3Scalings,
                 .roles = kPhi3Roles,
                 .unread_tensor = "rope_factors_short.weight"},
    // modeling_smollm3.py; llama.cpp's converter orders rows of q and k as of llama.
    Architecture{.name = "smollm3", .no_rope_period = 4, .rope_scalings = kRopeScalings},
    // modeling_granite.py; llama.cpp's converter orders rows of q and k as of llama.
    Architecture{.name = "granite",
                 .has_scales = true,
                 .rope_scalings = kRopeScalings,
                 .computed_keys = kScaleKeys},
    // modeling_granitemoe.py, and modeling_granitemoeshared.py, which has a shared expert; the
    // experts' width is feed_forward_length.
    Architecture{.name = "granitemoe",
                 .has_scales = true,
                 .has_experts = true,
                 .has_shared_expert = true,
                 .weighs_shared = false,
                 .rope_scalings = kRopeScalings,
                 .computed_keys = kGraniteMoeKeys},
    granite_hybrid(false),
    granite_hybrid(true),
    // modeling_olmo2.py and modeling_olmo3.py, which has windows and scales RoPE only without them.
    Architecture{.name = "olmo2",
                 .rope_pairs = RopePairs::kHalves,
                 .window_rope = WindowRope::kUnscaled,
                 .has_pre_norms = false,
                 .norms_rows = true,
                 .window_period = 4,
                 .rope_scalings = kRopeScalings,
                 .roles = kPostNormRoles},
    // modeling_seed_oss.py; post_attention_norm is the norm before the feed-forward.
    Architecture{.name = "seed_oss",
                 .rope_pairs = RopePairs::kHalves,
                 .rope_scalings = kRopeScalings,
                 .roles = kSeedOssRoles},
    // modeling_hunyuan_v1_dense.py. Files of models with NTK-alpha have the base that it gives.
    Architecture{.name = "hunyuan-dense",
                 .rope_pairs = RopePairs::kHalves,
                 .rotates_first = true,
                 .rope_scalings = kRopeScalings,
                 .roles = kQwen3Roles},
    // modeling_laguna.py; keys as in llama.cpp's src/models/laguna.cpp.
    Architecture{.name = "laguna",
                 .rope_pairs = RopePairs::kHalves,
                 .window_rope = WindowRope::kUnscaled,
                 .output_gate = OutputGate::kHeadSoftplus,
                 .has_experts = true,
                 .has_dense_layers = true,
                 .router = Router::kSigmoid,
                 .weights_add_up = false,
                 .has_shared_expert = true,
                 .weighs_shared = false,
                 .window_period = 4,
                 .begins_without_window = true,
                 .rope_scalings = kRopeScalings,
                 .computed_keys = kDenseFirstKeys,
                 .roles = kLagunaRoles},
    // modeling_hunyuan_v1_moe.py.
    Architecture{.name = "hunyuan-moe",
                 .keys = {.d_ff = "expert_feed_forward_length"},
                 .rope_pairs = RopePairs::kHalves,
                 .rotates_first = true,
                 .has_experts = true,
                 .has_shared_expert = true,
                 .weighs_shared = false,
                 .rope_scalings = kRopeScalings,
                 .computed_keys = kSharedMoeKeys,
                 .roles = kQwen3Roles},
    // modeling_glm4_moe.py; post_attention_norm is the norm before the feed-forward.
    Architecture{.name = "glm4moe",
                 .rope_pairs = RopePairs::kHalves,
                 .has_experts = true,
                 .has_dense_layers = true,
                 .router = Router::kSigmoid,
                 .weights_add_up = false,
                 .has_shared_expert = true,
                 .counts_shared = true,
                 .weighs_shared = false,
                 .rope_scalings = kRopeScalings,
                 .computed_keys = kGlm4MoeKeys,
                 .roles = kGlm4MoeRoles},
    // modeling_glm4.py, whose pairs are neighbours, too.
    Architecture{.name = "glm4", .rope_scalings = kRopeScalings, .roles = kGlm4Roles},
    // modeling_exaone4.py; the small model has no windows, and RoPE in all layers.
    Architecture{.name = "exaone4",
                 .rope_pairs = RopePairs::kHalves,
                 .window_rope = WindowRope::kAlone,
                 .has_pre_norms = false,
                 .window_period = 4,
                 .rope_scalings = kRopeScalings,
                 .roles = kPostNormRoles},
    // modeling_gemma2.py; what files lack is as in llama.cpp's src/models/gemma2.cpp. Norms'
    // weights in files hold 1 + w. Of 27 B, of 46 layers, no key gives the scale of scores.
    Architecture{.name = "gemma2",
                 .rope_pairs = RopePairs::kHalves,
                 .activation = Activation::kGeGluTanh,
                 .scales_embedding = true,
                 .score_cap = 50,
                 .logit_cap = 30,
                 .window_period = 2,
                 .window = 4096,
                 .rope_scalings = kRopeScalings,
                 .computed_keys = kGemma2Keys,
                 .width_scaled_n_layers = 46,
                 .roles = kGemma2Roles},
    // modeling_gemma3.py, the text model; keys as in llama.cpp's src/llama-model.cpp. Norms'
    // weights in files hold 1 + w. Of 27 B, of 62 layers, no key gives the scale of scores.
    Architecture{.name = "gemma3",
                 .rope_pairs = RopePairs::kHalves,
                 .activation = Activation::kGeGluTanh,
                 .rope_theta = 1000000.0F,
                 .window_rope = WindowRope::kUnscaled,
                 .window_rope_theta = 10000.0F,
                 .scales_embedding = true,
                 .window_period = 6,
                 .rope_scalings = kRopeScalings,
                 .width_scaled_n_layers = 62,
                 .roles = kGemma3Roles},
    gemma4(false),
    gemma4(true),
    gemma4_assistant(),
    // Layers without KV heads are short convolutions.
    Architecture{.name = "lfm2",
                 .keys = {.conv_width = "shortconv.l_cache"},
                 .rope_pairs = RopePairs::kHalves,
                 .rope_theta = 1000000.0F,
                 .has_short_convs = true,
                 .rope_scalings = kRopeScalings,
                 .roles = kLfm2Roles},
    // modeling_lfm2_moe.py; the first layers have one feed-forward of another width.
    Architecture{.name = "lfm2moe",
                 .keys = {.conv_width = "shortconv.l_cache"},
                 .rope_pairs = RopePairs::kHalves,
                 .rope_theta = 1000000.0F,
                 .has_short_convs = true,
                 .has_experts = true,
                 .has_dense_layers = true,
                 .router = Router::kSigmoid,
                 .rope_scalings = kRopeScalings,
                 .computed_keys = kLfm2MoeKeys,
                 .roles = kLfm2MoeRoles},
};

/// The number or boolean that `value` holds; nothing for texts and arrays.
std::optional<double> number_of(const GgufValue& value) {
  if (gguf_fixed_size(value.type) == 0) return std::nullopt;
  return visit_gguf_number(value.type, value.bytes,
                           [](auto number) { return static_cast<double>(number); });
}

constexpr bool roles_exist(const Architecture& architecture) {
  return std::ranges::all_of(architecture.roles, [](const RoleNeed& row) {
    return role_index(row.role) < kTensorRoles.size();
  });
}
static_assert(std::ranges::all_of(kArchitectures, roles_exist));
// The definition scales every sum into the residual stream, and "ffn_sum" as one of them.
static_assert(std::ranges::none_of(kArchitectures, [](const Architecture& row) {
  return row.has_scales && row.has_ffn_norms;
}));
// read_rope() gives either kind of layers the second RoPE.
static_assert(std::ranges::none_of(kArchitectures, [](const Architecture& row) {
  return row.no_rope_period > 0 && row.window_rope != WindowRope::kSame;
}));

}  // namespace

std::string Architecture::key(std::string_view suffix) const {
  return fmt::format("{}.{}", name, suffix);
}

std::span<const Architecture> all_architectures() { return kArchitectures; }

const Architecture* find_architecture(std::string_view name, bool with_experts) {
  const Architecture* found = nullptr;
  for (const Architecture& row : kArchitectures)
    if (row.name == name && (found == nullptr || row.has_experts == with_experts)) found = &row;
  return found;
}

Result<const GgufTensor*> require_tensor(const GgufFile& gguf, const Architecture& architecture,
                                         std::string_view name) {
  const GgufTensor* tensor = gguf.find_tensor(name);
  if (tensor != nullptr) return tensor;
  return Error{ErrorCode::kMalformed, fmt::format("tensor \"{}\"", name),
               fmt::format("tensor is absent, need it: every model of architecture {} "
                           "has one",
                           architecture.name)};
}

Status check_refused_keys(const GgufFile& gguf, const Architecture& architecture) {
  for (const RefusedKey& refused : kKeysToRefuse) {
    const bool is_of_another = !architecture.name.starts_with(refused.only);
    if (is_of_another || std::ranges::count(architecture.computed_keys, refused.key) > 0) continue;
    const std::string key = architecture.key(refused.key);
    const GgufValue* value = gguf.find(key);
    if (value == nullptr) continue;
    const std::optional<double> number = number_of(*value);
    const auto [first, second] = refused.harmless;
    if (number && (*number == first || *number == second)) continue;
    const std::string rule =
        first == second ? fmt::format("{}", first) : fmt::format("{} or {}", first, second);
    return gguf.value_error(
        ErrorCode::kUnsupported, key,
        fmt::format("found {}, need {}: {}",
                    number ? fmt::format("{}", *number) : value->type_name(), rule, refused.why));
  }
  return Ok{};
}

}  // namespace llm
