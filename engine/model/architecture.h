#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/gguf/gguf_file.h"
#include "engine/model/layer_spec.h"
#include "quant/numerics/activation.h"

namespace llm {

/// The GGUF key of a hyper-parameter, after "{architecture}.". The values here are the format's own
/// (ggml's docs/gguf.md); an architecture that differs names its own.
struct HyperParameterKeys {
  std::string_view n_layers = "block_count";
  std::string_view d_model = "embedding_length";
  std::string_view d_ff = "feed_forward_length";
  std::string_view n_vocab = "vocab_size";
  std::string_view context = "context_length";
  std::string_view n_heads = "attention.head_count";
  std::string_view n_kv_heads = "attention.head_count_kv";
  std::string_view head_dim = "attention.key_length";
  std::string_view value_dim = "attention.value_length";
  std::string_view window_head_dim = "attention.key_length_swa";
  std::string_view window_value_dim = "attention.value_length_swa";
  std::string_view norm_eps = "attention.layer_norm_rms_epsilon";
  std::string_view rope_dims = "rope.dimension_count";
  std::string_view rope_theta = "rope.freq_base";
  std::string_view rope_scaling = "rope.scaling.type";
  std::string_view has_rope =
      "rope.scaling.finetuned";  ///< of files with Architecture::may_lack_rope
  std::string_view rope_scale = "rope.scaling.factor";
  std::string_view old_rope_scale = "rope.scale_linear";  ///< of older files
  std::string_view rope_magnitude = "rope.scaling.attn_factor";
  std::string_view original_context = "rope.scaling.original_context_length";
  std::string_view yarn_fast_turns = "rope.scaling.yarn_beta_fast";
  std::string_view yarn_slow_turns = "rope.scaling.yarn_beta_slow";
  std::string_view yarn_log_multiplier = "rope.scaling.yarn_log_multiplier";
  std::string_view yarn_magnitude = "rope.scaling.yarn_attn_factor";
  std::string_view query_growth = "attention.temperature_scale";
  std::string_view sliding_window = "attention.sliding_window";
  std::string_view window_period = "attention.sliding_window_pattern";
  std::string_view window_rope_theta = "rope.freq_base_swa";
  std::string_view window_rope_dims = "rope.dimension_count_swa";
  std::string_view shared_kv_layers = "attention.shared_kv_layers";
  std::string_view layer_input = "embedding_length_per_layer_input";
  std::string_view embedding_scale = "embedding_scale";
  std::string_view attention_scale = "attention.scale";
  std::string_view residual_scale = "residual_scale";
  std::string_view logit_scale = "logit_scale";
  std::string_view logit_cap = "final_logit_softcapping";
  std::string_view score_cap = "attn_logit_softcapping";
  std::string_view n_experts = "expert_count";
  std::string_view n_experts_used = "expert_used_count";
  std::string_view d_expert = "expert_feed_forward_length";  ///< where dense layers have d_ff
  std::string_view n_dense_layers = "leading_dense_block_count";
  std::string_view router = "expert_gating_func";
  std::string_view experts_add_up = "expert_weights_norm";
  std::string_view experts_scale = "expert_weights_scale";
  std::string_view n_shared_experts = "expert_shared_count";
  std::string_view d_shared = "expert_shared_feed_forward_length";
  std::string_view pooling = "pooling_type";
  std::string_view n_mtp_layers = "nextn_predict_layers";
  std::string_view d_trunk = "embedding_length_out";
  std::string_view n_deepstack_layers = "n_deepstack_layers";
  std::string_view full_attention_period = "full_attention_interval";
  std::string_view recurrent_layers = "attention.recurrent_layers";
  std::string_view conv_width = "ssm.conv_kernel";
  std::string_view delta_k_dim = "ssm.state_size";
  std::string_view delta_k_heads = "ssm.group_count";
  std::string_view delta_v_heads = "ssm.time_step_rank";
  std::string_view delta_v_rows = "ssm.inner_size";
};

/// Which dims of a head the rows of an architecture's files hold as a pair for RoPE
/// (docs/numerics.md, "The order of a head").
enum class RopePairs {
  kNeighbours,  ///< (2 i, 2 i + 1)
  kHalves,      ///< (i, i + rope_dims / 2)
};

/// RoPE of layers with a window, in models that have some.
enum class WindowRope {
  kSame,      ///< as in the others
  kUnscaled,  ///< not scaled; its base is the file's, else Architecture::window_rope_theta
  kAlone,     ///< the others have none
};

/// A value of rope.scaling.type. The frequency scalings llama3 and LongRoPE are not types: their
/// divisors are in rope_freqs.weight.
struct RopeScaling {
  std::string_view type;
  bool divides_positions = false;  ///< by rope.scaling.factor
  bool is_yarn = false;            ///< divides only slow pairs (docs/numerics.md)
  std::string_view refused = {};   ///< why it is not computed; empty: it is
};

/// Whether models have a tensor.
enum class Need {
  kRequired,
  kOptional,
  kAbsent,  ///< refused: it would change the result, and is not computed
};

/// How an architecture differs from a row of kTensorRoles.
struct RoleNeed {
  std::string_view role;  ///< TensorRole::name
  Need need;
  /// Its name in files; empty: the role's. Matrices of one name are one tensor, their rows one
  /// after the other in the order of the architecture's rows.
  std::string_view in_file = {};
  /// The heads of that tensor's roles are interleaved; of a DeltaNet's gates, one row for each
  /// value head, the rows of each key head; of experts, the rows of each.
  bool by_head = false;
};

/// A key that must be absent or one of two values: other values ask for what is not computed here.
struct RefusedKey {
  std::string_view key;  ///< after "{architecture}."
  std::string_view why;
  std::array<double, 2> harmless = {0, 0};  ///< a boolean counts as 0 or 1
  std::string_view only = {};  ///< with what names begin for which it has a meaning; empty: all
};

/// A supported value of general.architecture, and everything in which it differs from the others.
struct Architecture {
  std::string_view name;  ///< also the first part of its keys
  HyperParameterKeys keys = {};
  RopePairs rope_pairs = RopePairs::kNeighbours;
  Activation activation = Activation::kSwiGlu;
  float rope_theta = 10000.0F;  ///< if the file gives none
  WindowRope window_rope = WindowRope::kSame;
  float window_rope_theta = 0;     ///< where it is unscaled, if the file gives none; 0: the others'
  std::size_t no_rope_period = 0;  ///< the last of so many layers has no RoPE; 0: all have it
  bool may_lack_rope = false;      ///< the file says whether layers have RoPE
  bool scales_embedding = false;   ///< by the root of embedding_length
  bool has_scales = false;         ///< the file's, of embedding, scores, residuals and logits
  bool needs_scales = false;       ///< all but that of scores
  /// All but the last of so many layers are Gated DeltaNets, if the file does not say otherwise;
  /// 0: none is.
  std::size_t full_attention_period = 0;
  bool groups_value_heads = false;  ///< DeltaNetSpec::grouped
  float attention_scale = 0;        ///< of scores, if the file gives none; 0: 1 / sqrt(head dim)
  float score_cap = 0;              ///< AttentionSpec::score_cap, if the file gives none
  float logit_cap = 0;              ///< HyperParameters::logit_cap, likewise
  bool has_pre_norms = true;        ///< LayerSpec::has_pre_norms
  bool norms_rows = false;          ///< AttentionSpec::norms_rows
  bool rotates_first = false;       ///< AttentionSpec::rotates_first
  OutputGate output_gate = OutputGate::kNone;  ///< kHeadSoftplus: the tensor says of what
  bool has_value_norm = false;                 ///< AttentionSpec::value_norm
  bool values_may_be_keys = false;             ///< AttentionSpec::v_is_k, in layers without attn_v
  bool has_short_convs = false;                ///< layers without KV heads have a ShortConvSpec
  bool has_mambas = false;        ///< layers without KV heads have a DeltaNetSpec of Mamba-2
  bool has_experts = false;       ///< feed-forwards are mixtures of experts
  bool has_dense_layers = false;  ///< but for the file's first ones
  Router router = Router::kSoftmax;
  bool weights_add_up = true;      ///< FfnSpec::weights_add_up, if the file does not say
  bool has_shared_expert = false;  ///< FfnSpec::d_shared
  bool counts_shared = false;      ///< it is as wide as the file's expert_shared_count experts
  bool weighs_shared = true;       ///< FfnSpec::weighs_shared
  bool has_ffn_norms = false;      ///< FfnSpec::own_norms
  /// All but the last of so many layers have the file's attention.sliding_window; 1: every layer
  /// has it; 0: none, and a file with one is refused.
  std::size_t window_period = 0;
  bool begins_without_window = false;  ///< the first of them is, not the last
  std::size_t window = 0;              ///< attention.sliding_window, if the file gives none
  std::span<const RopeScaling> rope_scalings = {};   ///< the types that are known
  std::string_view default_rope_scaling = "linear";  ///< if the file gives no type
  bool yarn_rounds = true;                           ///< the pairs between which YaRN's ramp lies
  std::span<const std::string_view> computed_keys = {};  ///< that are refused elsewhere
  /// Models with this many layers scale scores by 1 / sqrt(d_model / n_heads); 0: none do.
  std::size_t width_scaled_n_layers = 0;
  std::span<const RoleNeed> roles = {};  ///< the others are as kTensorRoles says
  std::string_view unread_tensor = {};   ///< files may have it; no result depends on it
  /// The architecture of the models that its models are made for, and whose keys and values they
  /// read (HyperParameters::d_trunk); empty: none.
  std::string_view trunk = {};

  /// "llama.block_count" of "block_count".
  std::string key(std::string_view suffix) const;
};

std::span<const Architecture> all_architectures();
/// The row of that name, or nullptr. Of two rows, one is of models with experts.
const Architecture* find_architecture(std::string_view name, bool with_experts = false);

/// Errors: kUnsupported, naming key, value and rule, for a key that asks for
/// something that is not computed here.
Status check_refused_keys(const GgufFile& gguf, const Architecture& architecture);

/// The tensor called `name`, which every model of the architecture has.
/// Errors: kMalformed when it is absent.
Result<const GgufTensor*> require_tensor(const GgufFile& gguf, const Architecture& architecture,
                                         std::string_view name);

}  // namespace llm
