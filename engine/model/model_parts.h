#pragma once

#include <vector>

namespace llm {

/// The tensors of one decoder block (blk.N.*), as views of the file or packed. What of them exists
/// and in which shape is in kTensorRoles; those that a file lacks are empty.
template <typename Matrix, typename Vector>
struct LayerParts {
  Vector attn_norm;          ///< (d_model)
  Matrix attn_q;             ///< (n_heads * head_dim, d_model)
  Matrix attn_k;             ///< (n_kv_heads * head_dim, d_model)
  Matrix attn_v;             ///< (n_kv_heads * head_dim, d_model)
  Vector attn_q_bias;        ///< (n_heads * head_dim)
  Vector attn_k_bias;        ///< (n_kv_heads * head_dim)
  Vector attn_v_bias;        ///< (n_kv_heads * head_dim)
  Vector attn_q_norm;        ///< (head_dim): of each head of q, before RoPE
  Vector attn_k_norm;        ///< (head_dim): of each head of k
  Vector attn_sinks;         ///< (n_heads): scores of keys without a value
  Matrix attn_output;        ///< (d_model, n_heads * head_dim)
  Vector attn_output_bias;   ///< (d_model)
  Vector attn_post_norm;     ///< (d_model): post_attention_norm.weight
  Vector ffn_norm;           ///< (d_model)
  Matrix ffn_gate_inp;       ///< (n_experts, d_model): the router
  Vector ffn_gate_inp_bias;  ///< (n_experts)
  Matrix ffn_gate;           ///< (n_ffn * d_ff, d_model): one expert after the other
  Matrix ffn_up;             ///< (n_ffn * d_ff, d_model)
  Matrix ffn_down;           ///< (n_ffn * d_model, d_ff)
  Vector ffn_gate_bias;      ///< (n_ffn * d_ff)
  Vector ffn_up_bias;        ///< (n_ffn * d_ff)
  Vector ffn_down_bias;      ///< (n_ffn * d_model)
  Vector ffn_post_norm;      ///< (d_model): post_ffw_norm.weight
};

/// The tensors of a model. Those that a file lacks are empty.
template <typename Matrix, typename Vector>
struct ModelParts {
  Matrix token_embd;  ///< (n_vocab, d_model)
  std::vector<LayerParts<Matrix, Vector>> layers;
  Vector output_norm;    ///< (d_model)
  Matrix own_output;     ///< (n_vocab, d_model): output.weight; empty when tied to token_embd
  Vector rope_divisors;  ///< (rope_dims / 2): rope_freqs.weight, divides the frequencies
};

}  // namespace llm
