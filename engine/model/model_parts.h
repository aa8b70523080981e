#pragma once

#include <vector>

namespace llm {

/// The tensors of one decoder block (blk.N.*), as views of the file or packed. What of them exists
/// and in which shape is in kTensorRoles; those that a file lacks are empty.
template <typename Matrix, typename Vector>
struct LayerParts {
  Matrix eh_proj;             ///< (d_model, 2 * d_model): of an embedding and a row of the trunk
  Vector enorm;               ///< (d_model): of the embedding
  Vector hnorm;               ///< (d_model): of the row
  Vector attn_norm;           ///< (d_model)
  Matrix attn_q;              ///< (n_heads * head_dim, d_model)
  Matrix attn_k;              ///< (n_kv_heads * head_dim, d_model)
  Matrix attn_v;              ///< (n_kv_heads * head_dim, d_model)
  Vector attn_q_bias;         ///< (n_heads * head_dim)
  Vector attn_k_bias;         ///< (n_kv_heads * head_dim)
  Vector attn_v_bias;         ///< (n_kv_heads * head_dim)
  Vector attn_q_norm;         ///< (q_norm_size): of each head of q, or of all
  Vector attn_k_norm;         ///< (head_dim): of each head of k
  Matrix attn_q_gate;         ///< (gate_rows, d_model): of the output
  Vector attn_sinks;          ///< (n_heads): scores of keys without a value
  Matrix attn_output;         ///< (d_model, n_heads * head_dim)
  Vector attn_output_bias;    ///< (d_model)
  Matrix attn_qkv;            ///< (channels, d_model): of a DeltaNet or Mamba-2, q, k and v
  Matrix attn_gate;           ///< (n_v_heads * v_dim, d_model): of its output
  Matrix ssm_beta;            ///< (n_v_heads, d_model): how much a token replaces
  Matrix ssm_alpha;           ///< (n_v_heads, d_model): how much stays
  Matrix conv_b;              ///< (d_model, d_model): of a short convolution, gates its input
  Matrix conv_c;              ///< (d_model, d_model): gates its output
  Matrix conv_x;              ///< (d_model, d_model): its input
  Vector conv1d;              ///< (channels, conv_width): the last is of the token itself
  Vector conv1d_bias;         ///< (channels)
  Matrix conv_out;            ///< (d_model, d_model)
  Vector ssm_dt;              ///< (n_v_heads): added to alpha
  Vector ssm_a;               ///< (n_v_heads): below 0, of the logarithm of what stays
  Vector ssm_d;               ///< (n_v_heads): of Mamba-2, what goes past the state
  Vector ssm_norm;            ///< (n_norms * norm_size)
  Matrix ssm_out;             ///< (d_model, n_v_heads * v_dim)
  Vector attn_post_norm;      ///< (d_model): post_attention_norm.weight
  Vector ffn_norm;            ///< (d_model)
  Vector router_norm;         ///< (d_model): ffn_gate_inp.scale
  Vector experts_norm;        ///< (d_model): pre_ffw_norm_2.weight
  Matrix ffn_gate_inp;        ///< (n_experts, d_model): the router
  Vector ffn_gate_inp_bias;   ///< (n_experts)
  Vector expert_bias;         ///< (n_experts): added for the choice alone
  Matrix ffn_gate;            ///< (n_ffn * d_ff, d_model): one expert after the other
  Matrix ffn_up;              ///< (n_ffn * d_ff, d_model)
  Matrix ffn_down;            ///< (n_ffn * d_model, d_ff)
  Vector ffn_gate_bias;       ///< (n_ffn * d_ff)
  Vector ffn_up_bias;         ///< (n_ffn * d_ff)
  Vector ffn_down_bias;       ///< (n_ffn * d_model)
  Matrix ffn_gate_shexp;      ///< (d_shared, d_model): of the expert that every row goes through
  Matrix ffn_up_shexp;        ///< (d_shared, d_model)
  Matrix ffn_down_shexp;      ///< (d_model, d_shared)
  Matrix ffn_gate_inp_shexp;  ///< (1, d_model): its weight
  Vector mix_norm;            ///< (d_model): post_ffw_norm_2.weight, of the experts' sum
  Vector shared_norm;         ///< (d_model): post_ffw_norm_1.weight, of the shared expert
  Vector ffn_post_norm;       ///< (d_model): post_ffw_norm.weight
  Matrix inp_gate;            ///< (d_input, d_model): of the layer's own inputs
  Matrix inp_proj;            ///< (d_model, d_input)
  Vector inp_post_norm;       ///< (d_model): post_norm.weight
  Vector out_scale;           ///< (1): layer_output_scale.weight
  Vector head_norm;           ///< (d_model): in place of output_norm
};

/// The tensors of a model. Those that a file lacks are empty.
template <typename Matrix, typename Vector>
struct ModelParts {
  Matrix token_embd;  ///< (n_vocab, d_model)
  Matrix input_embd;  ///< (n_vocab, d_inputs): per_layer_token_embd.weight
  Matrix input_proj;  ///< (d_inputs, d_model): per_layer_model_proj.weight
  Vector input_norm;  ///< (d_input): per_layer_proj_norm.weight
  Matrix from_trunk;  ///< (d_model, 2 * d_trunk): nextn.pre_projection.weight
  std::vector<LayerParts<Matrix, Vector>> layers;
  Vector output_norm;    ///< (d_model)
  Matrix to_trunk;       ///< (d_trunk, d_model): nextn.post_projection.weight
  Matrix own_output;     ///< (n_vocab, d_model): output.weight; empty when tied to token_embd
  Vector rope_divisors;  ///< (rope_dims / 2): rope_freqs.weight, divides the frequencies
};

}  // namespace llm
