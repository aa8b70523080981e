#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/aligned_buffer.h"
#include "engine/model/architecture.h"
#include "engine/model/hyper_parameters.h"
#include "engine/model/layer_table.h"
#include "engine/model/model_tensors.h"
#include "engine/model/tensor_name.h"
#include "engine/model/weights.h"
#include "quant/kernels/packed_matrix.h"

namespace llm {

/// A member of type T, of a model or of each of its layers.
template <typename Model, typename Layer, typename T>
class PartMember {
 public:
  constexpr PartMember() = default;
  constexpr PartMember(T Layer::*member) : in_layer_(member) {}
  constexpr PartMember(T Model::*member) : in_model_(member) {}

  constexpr bool exists() const { return in_layer_ != nullptr || in_model_ != nullptr; }
  constexpr bool per_layer() const { return in_layer_ != nullptr; }

  /// @pre exists(); `layer` is a layer of the model, or kOutsideLayers if not per_layer()
  T& of(Model& model, int layer) const {
    return per_layer() ? model.layers[static_cast<std::size_t>(layer)].*in_layer_
                       : model.*in_model_;
  }
  const T& of(const Model& model, int layer) const {
    return per_layer() ? model.layers[static_cast<std::size_t>(layer)].*in_layer_
                       : model.*in_model_;
  }

 private:
  T Layer::*in_layer_ = nullptr;
  T Model::*in_model_ = nullptr;
};

/// What the rows of a tensor (the elements of a vector) are.
enum class RowOrder {
  kPlain,
  kRopeHeads,  ///< heads of head_dim rows, whose pairs RoPE turns: packed as file_row() says
};

/// What a tensor of a model is for. A matrix keeps the file's type; a vector is F32.
struct TensorRole {
  using View = PartMember<ModelTensors, LayerTensors, TensorView>;
  using Matrix = PartMember<ModelWeights, LayerWeights, PackedMatrix>;
  using Vector = PartMember<ModelWeights, LayerWeights, AlignedBuffer<float>>;

  std::string_view name;  ///< in the file, after "blk.N." where it is in a layer
  Need need;              ///< where the architecture does not say otherwise
  ModelSize rows;         ///< outputs; 1 for a vector
  ModelSize stack;        ///< matrices, or vectors, of that shape, one after the other
  ModelSize cols;         ///< inputs
  View view;              ///< where the file's tensor is bound
  Matrix matrix;          ///< where it is packed; of a vector none
  Vector vector;          ///< where its values are; of a matrix none
  RowOrder order;         ///< of rows; of a vector's elements
  bool per_layer;
  /// Layers without it have no such tensor; of one outside the layers, models whose layers lack it.
  LayerPart part = LayerPart::kEvery;
  /// In layers with it another tensor is read, unless the architecture names one (RoleNeed):
  LayerPart other_part = LayerPart::kEvery;
  std::string_view other_name = {};  ///< that one; empty: never

  constexpr TensorRole(std::string_view role, Need n, ModelSize n_rows, ModelSize n_cols, View v,
                       Matrix packed, RowOrder row_order = RowOrder::kPlain,
                       ModelSize n_stacked = {})
      : name(role),
        need(n),
        rows(n_rows),
        stack(n_stacked),
        cols(n_cols),
        view(v),
        matrix(packed),
        order(row_order),
        per_layer(v.per_layer()) {}
  constexpr TensorRole(std::string_view role, Need n, ModelSize size, View v, Vector values,
                       RowOrder element_order = RowOrder::kPlain, ModelSize n_stacked = {})
      : name(role),
        need(n),
        stack(n_stacked),
        cols(size),
        view(v),
        vector(values),
        order(element_order),
        per_layer(v.per_layer()) {}

  /// The same row, of layers that have the part.
  constexpr TensorRole of(LayerPart of_part) const {
    TensorRole role = *this;
    role.part = of_part;
    return role;
  }

  /// The same row; in layers that have the part, it is read from the tensor `other`.
  constexpr TensorRole with(LayerPart of_part, std::string_view other) const {
    TensorRole role = *this;
    role.other_part = of_part;
    role.other_name = other;
    return role;
  }

  constexpr bool is_matrix() const { return matrix.exists(); }
  /// What one row reads of `whole`, all of the role's matrix in a layer.
  std::uint64_t share_used(const HyperParameters& config, int layer, std::uint64_t whole) const {
    const std::size_t n = stack.of(config, layer);
    return n == 1 ? whole : whole / n * config.layers[static_cast<std::size_t>(layer)].n_ffn_used();
  }
};

/// Every tensor that is read, in the order of the data flow. All that lists tensors of a model
/// walks this table: binding, packing, checks, reports, synthetic models. A role of other
/// architectures has the need kAbsent here, and another in their Architecture::roles.
inline constexpr std::array kTensorRoles = [] {
  using enum LayerPart;
  using enum Need;
  using enum RowOrder;
  using H = HyperParameters;
  using L = LayerTensors;
  using M = ModelTensors;
  using S = LayerSpec;
  using LW = LayerWeights;
  using MW = ModelWeights;
  return std::array{
      TensorRole("token_embd.weight", kRequired, &H::n_vocab, &H::d_model, &M::token_embd,
                 &MW::token_embd),
      TensorRole("per_layer_token_embd.weight", kRequired, &H::n_vocab, &H::d_inputs,
                 &M::input_embd, &MW::input_embd)
          .of(kLayerInput),
      TensorRole("per_layer_model_proj.weight", kRequired, &H::d_inputs, &H::d_model,
                 &M::input_proj, &MW::input_proj)
          .of(kLayerInput),
      TensorRole("per_layer_proj_norm.weight", kRequired, &H::d_input, &M::input_norm,
                 &MW::input_norm)
          .of(kLayerInput),
      TensorRole("nextn.pre_projection.weight", kRequired, &H::d_model, &H::d_trunk_input,
                 &M::from_trunk, &MW::from_trunk)
          .of(kTrunk),
      TensorRole("nextn.enorm.weight", kRequired, &H::d_model, &L::enorm, &LW::enorm)
          .of(kNextToken),
      TensorRole("nextn.hnorm.weight", kRequired, &H::d_model, &L::hnorm, &LW::hnorm)
          .of(kNextToken),
      TensorRole("nextn.eh_proj.weight", kRequired, &H::d_model, {&S::n_inputs, &H::d_model},
                 &L::eh_proj, &LW::eh_proj)
          .of(kNextToken),
      TensorRole("attn_norm.weight", kRequired, &H::d_model, &L::attn_norm, &LW::attn_norm)
          .of(kPreNorms),
      TensorRole("attn_q.weight", kRequired, &S::q_rows, &H::d_model, &L::attn_q, &LW::attn_q,
                 kRopeHeads)
          .of(kAttention),
      TensorRole("attn_q_gate.weight", kAbsent, &S::gate_rows, &H::d_model, &L::attn_q_gate,
                 &LW::attn_q_gate)
          .of(kOutputGate),
      TensorRole("attn_k.weight", kRequired, &S::kv_rows, &H::d_model, &L::attn_k, &LW::attn_k,
                 kRopeHeads)
          .of(kOwnKeys),
      TensorRole("attn_v.weight", kRequired, &S::kv_rows, &H::d_model, &L::attn_v, &LW::attn_v)
          .of(kOwnKeys)
          .with(kValuesOfKeys, "attn_k.weight"),
      TensorRole("attn_q.bias", kAbsent, &S::q_rows, &L::attn_q_bias, &LW::attn_q_bias, kRopeHeads)
          .of(kAttention),
      TensorRole("attn_k.bias", kAbsent, &S::kv_rows, &L::attn_k_bias, &LW::attn_k_bias, kRopeHeads)
          .of(kOwnKeys),
      TensorRole("attn_v.bias", kAbsent, &S::kv_rows, &L::attn_v_bias, &LW::attn_v_bias)
          .of(kOwnKeys),
      TensorRole("attn_q_norm.weight", kAbsent, &S::q_norm_size, &L::attn_q_norm, &LW::attn_q_norm,
                 kRopeHeads)
          .of(kAttention),
      TensorRole("attn_k_norm.weight", kAbsent, &S::k_norm_size, &L::attn_k_norm, &LW::attn_k_norm,
                 kRopeHeads)
          .of(kOwnKeys),
      TensorRole("attn_sinks.weight", kAbsent, &S::n_heads, &L::attn_sinks, &LW::attn_sinks)
          .of(kAttention),
      TensorRole("attn_output.weight", kRequired, &H::d_model, &S::q_rows, &L::attn_output,
                 &LW::attn_output)
          .of(kAttention),
      TensorRole("attn_output.bias", kAbsent, &H::d_model, &L::attn_output_bias,
                 &LW::attn_output_bias)
          .of(kAttention),
      TensorRole("attn_qkv.weight", kRequired, &S::delta_channels, &H::d_model, &L::attn_qkv,
                 &LW::attn_qkv)
          .of(kStates),
      TensorRole("attn_gate.weight", kRequired, &S::delta_v_rows, &H::d_model, &L::attn_gate,
                 &LW::attn_gate)
          .of(kStates),
      TensorRole("ssm_beta.weight", kRequired, &S::delta_v_heads, &H::d_model, &L::ssm_beta,
                 &LW::ssm_beta)
          .of(kDeltaNet),
      TensorRole("ssm_alpha.weight", kRequired, &S::delta_v_heads, &H::d_model, &L::ssm_alpha,
                 &LW::ssm_alpha)
          .of(kStates),
      TensorRole("shortconv.b.weight", kAbsent, &H::d_model, &H::d_model, &L::conv_b, &LW::conv_b)
          .of(kShortConv),
      TensorRole("shortconv.c.weight", kAbsent, &H::d_model, &H::d_model, &L::conv_c, &LW::conv_c)
          .of(kShortConv),
      TensorRole("shortconv.x.weight", kAbsent, &H::d_model, &H::d_model, &L::conv_x, &LW::conv_x)
          .of(kShortConv),
      TensorRole("ssm_conv1d.weight", kRequired, &S::conv_width, &L::conv1d, &LW::conv1d, kPlain,
                 &S::conv_channels)
          .of(kConvolution)
          .with(kShortConv, "shortconv.conv.weight"),
      TensorRole("ssm_conv1d.bias", kAbsent, &S::conv_channels, &L::conv1d_bias, &LW::conv1d_bias)
          .of(kConvolution),
      TensorRole("shortconv.out_proj.weight", kRequired, &H::d_model, &H::d_model, &L::conv_out,
                 &LW::conv_out)
          .of(kShortConv),
      TensorRole("ssm_dt.bias", kRequired, &S::delta_v_heads, &L::ssm_dt, &LW::ssm_dt).of(kStates),
      TensorRole("ssm_a", kRequired, &S::delta_v_heads, &L::ssm_a, &LW::ssm_a).of(kStates),
      TensorRole("ssm_d", kRequired, &S::delta_v_heads, &L::ssm_d, &LW::ssm_d).of(kMamba),
      TensorRole("ssm_norm.weight", kRequired, &S::delta_norm_size, &L::ssm_norm, &LW::ssm_norm,
                 kPlain, &S::delta_norms)
          .of(kStates),
      TensorRole("ssm_out.weight", kRequired, &H::d_model, &S::delta_v_rows, &L::ssm_out,
                 &LW::ssm_out)
          .of(kStates),
      TensorRole("post_attention_norm.weight", kAbsent, &H::d_model, &L::attn_post_norm,
                 &LW::attn_post_norm),
      TensorRole("ffn_norm.weight", kRequired, &H::d_model, &L::ffn_norm, &LW::ffn_norm)
          .of(kPreNorms),
      TensorRole("ffn_gate_inp.scale", kRequired, &H::d_model, &L::router_norm, &LW::router_norm)
          .of(kFfnNorms),
      TensorRole("ffn_gate_inp.weight", kRequired, &S::n_experts, &H::d_model, &L::ffn_gate_inp,
                 &LW::ffn_gate_inp)
          .of(kExperts),
      TensorRole("ffn_gate_inp.bias", kAbsent, &S::n_experts, &L::ffn_gate_inp_bias,
                 &LW::ffn_gate_inp_bias)
          .of(kExperts),
      TensorRole("exp_probs_b.bias", kAbsent, &S::n_experts, &L::expert_bias, &LW::expert_bias)
          .of(kExperts),
      TensorRole("pre_ffw_norm_2.weight", kRequired, &H::d_model, &L::experts_norm,
                 &LW::experts_norm)
          .of(kFfnNorms),
      TensorRole("ffn_gate.weight", kRequired, &S::d_ff, &H::d_model, &L::ffn_gate, &LW::ffn_gate,
                 kPlain, &S::n_ffn)
          .with(kExperts, "ffn_gate_exps.weight"),
      TensorRole("ffn_up.weight", kRequired, &S::d_ff, &H::d_model, &L::ffn_up, &LW::ffn_up, kPlain,
                 &S::n_ffn)
          .with(kExperts, "ffn_up_exps.weight"),
      TensorRole("ffn_down.weight", kRequired, &H::d_model, &S::d_ff, &L::ffn_down, &LW::ffn_down,
                 kPlain, &S::n_ffn)
          .with(kExperts, "ffn_down_exps.weight"),
      TensorRole("ffn_gate.bias", kAbsent, &S::d_ff, &L::ffn_gate_bias, &LW::ffn_gate_bias, kPlain,
                 &S::n_ffn),
      TensorRole("ffn_up.bias", kAbsent, &S::d_ff, &L::ffn_up_bias, &LW::ffn_up_bias, kPlain,
                 &S::n_ffn),
      TensorRole("ffn_down.bias", kAbsent, &H::d_model, &L::ffn_down_bias, &LW::ffn_down_bias,
                 kPlain, &S::n_ffn),
      TensorRole("ffn_gate_shexp.weight", kRequired, &S::d_shared, &H::d_model, &L::ffn_gate_shexp,
                 &LW::ffn_gate_shexp)
          .of(kSharedExpert),
      TensorRole("ffn_up_shexp.weight", kRequired, &S::d_shared, &H::d_model, &L::ffn_up_shexp,
                 &LW::ffn_up_shexp)
          .of(kSharedExpert),
      TensorRole("ffn_down_shexp.weight", kRequired, &H::d_model, &S::d_shared, &L::ffn_down_shexp,
                 &LW::ffn_down_shexp)
          .of(kSharedExpert),
      TensorRole("ffn_gate_inp_shexp.weight", kRequired, ModelSize(), &H::d_model,
                 &L::ffn_gate_inp_shexp, &LW::ffn_gate_inp_shexp)
          .of(kSharedWeight),
      TensorRole("post_ffw_norm_2.weight", kRequired, &H::d_model, &L::mix_norm, &LW::mix_norm)
          .of(kFfnNorms),
      TensorRole("post_ffw_norm_1.weight", kRequired, &H::d_model, &L::shared_norm,
                 &LW::shared_norm)
          .of(kFfnNorms),
      TensorRole("post_ffw_norm.weight", kAbsent, &H::d_model, &L::ffn_post_norm,
                 &LW::ffn_post_norm),
      TensorRole("inp_gate.weight", kRequired, &S::n_input, &H::d_model, &L::inp_gate,
                 &LW::inp_gate)
          .of(kLayerInput),
      TensorRole("proj.weight", kRequired, &H::d_model, &S::n_input, &L::inp_proj, &LW::inp_proj)
          .of(kLayerInput),
      TensorRole("post_norm.weight", kRequired, &H::d_model, &L::inp_post_norm, &LW::inp_post_norm)
          .of(kLayerInput),
      TensorRole("layer_output_scale.weight", kAbsent, ModelSize(), &L::out_scale, &LW::out_scale)
          .of(kOutputScale),
      TensorRole("nextn.shared_head_norm.weight", kOptional, &H::d_model, &L::head_norm,
                 &LW::head_norm)
          .of(kNextToken),
      TensorRole("output_norm.weight", kRequired, &H::d_model, &M::output_norm, &MW::output_norm),
      TensorRole("nextn.post_projection.weight", kRequired, &H::d_trunk, &H::d_model, &M::to_trunk,
                 &MW::to_trunk)
          .of(kTrunk),
      TensorRole("output.weight", kOptional, &H::n_vocab, &H::d_model, &M::own_output,
                 &MW::own_output),
      TensorRole("rope_freqs.weight", kOptional, &H::rope_pairs, &M::rope_divisors,
                 &MW::rope_divisors),
  };
}();

/// Place of the role of that name in kTensorRoles; its size when there is none.
constexpr std::size_t role_index(std::string_view name) {
  std::size_t i = 0;
  while (i < kTensorRoles.size() && kTensorRoles[i].name != name) ++i;
  return i;
}

/// The role of that name, or nullptr.
constexpr const TensorRole* find_role(std::string_view name) {
  const std::size_t i = role_index(name);
  return i < kTensorRoles.size() ? &kTensorRoles[i] : nullptr;
}

/// Every role in every layer, in the order of the data flow.
inline std::vector<InLayer<TensorRole>> roles_of_model(std::size_t n_layers) {
  return in_every_layer(std::span<const TensorRole>(kTensorRoles), n_layers);
}

/// What `architecture` says of a role: its own row, or what the table says.
constexpr RoleNeed role_in(const Architecture& architecture, const TensorRole& role) {
  for (const RoleNeed& difference : architecture.roles)
    if (difference.role == role.name)
      return {role.name, difference.need,
              difference.in_file.empty() ? role.name : difference.in_file, difference.by_head};
  return {role.name, role.need, role.name};
}
/// Whether models of `architecture` have tensors of `role`.
constexpr Need need_of(const Architecture& architecture, const TensorRole& role) {
  return role_in(architecture, role).need;
}
/// Whether `layer` (kOutsideLayers outside the layers) of a model has a tensor of `role`.
inline Need need_of(const HyperParameters& config, const TensorRole& role, int layer) {
  const std::size_t at = role.per_layer ? static_cast<std::size_t>(layer) : 0;
  const bool has_part = role.part == LayerPart::kEvery || config.layers[at].has(role.part);
  return has_part ? need_of(*config.architecture, role) : Need::kAbsent;
}
/// Where a role's rows lie in its tensor, which may hold those of several roles (RoleNeed).
struct RowsInTensor {
  std::size_t first = 0;
  std::size_t all = 0;
};
inline RowsInTensor rows_in_tensor(const HyperParameters& config, const TensorRole& role,
                                   int layer) {
  const Architecture& architecture = *config.architecture;
  const std::string_view name = role_in(architecture, role).in_file;
  RowsInTensor rows;
  for (const RoleNeed& need : architecture.roles) {
    if (need.in_file != name) continue;
    if (need.role == role.name) rows.first = rows.all;
    rows.all += find_role(need.role)->rows.of(config, layer);
  }
  if (rows.all == 0) rows.all = role.rows.of(config, layer);
  return rows;
}
/// Whether a tensor's rows are packed in another order than the file's.
inline bool is_reordered(const HyperParameters& config, const TensorRole& role) {
  return (role.order == RowOrder::kRopeHeads &&
          config.architecture->rope_pairs == RopePairs::kHalves) ||
         role_in(*config.architecture, role).by_head;
}

/// The row of the tensor's view (of a vector: the element) that is packed as row `packed`: itself,
/// unless the file has RoPE's pairs as halves of a head (docs/numerics.md, "The order of a head"),
/// or heads of several roles in turn.
inline std::size_t file_row(const HyperParameters& config, const TensorRole& role, int layer,
                            std::size_t packed) {
  if (!is_reordered(config, role)) return packed;
  const LayerSpec& spec = config.layers[static_cast<std::size_t>(layer)];
  const DeltaNetSpec* const delta = spec.delta_net();
  const std::size_t head_dim = role.stack.of(config, layer) > 1 ? role.rows.of(config, layer)
                               : delta != nullptr               ? delta->heads_per_k()
                                                                : spec.head_dim();
  std::size_t dim = packed % head_dim;
  std::size_t head = packed / head_dim;
  if (role.order == RowOrder::kRopeHeads) {
    const std::size_t rope_dims = config.paired_dims(static_cast<std::size_t>(layer));
    if (dim < rope_dims) dim = dim % 2 * (rope_dims / 2) + dim / 2;
  }
  if (role_in(*config.architecture, role).by_head) {
    const RowsInTensor rows = rows_in_tensor(config, role, layer);
    const std::size_t own = role.rows.of(config, layer);
    head = head * (rows.all / own) + rows.first / own;
  }
  return head * head_dim + dim;
}

/// The name of the role's tensor in files: "blk.3.ffn_down.weight".
inline std::string name_in_file(const Architecture& architecture, const TensorRole& role,
                                int layer) {
  return tensor_name(role_in(architecture, role).in_file, layer);
}
inline std::string name_in_file(const HyperParameters& config, const TensorRole& role, int layer) {
  const int block = role.per_layer ? layer + static_cast<int>(config.first_block) : layer;
  if (!role.other_name.empty() && role_in(*config.architecture, role).in_file == role.name &&
      config.layers[static_cast<std::size_t>(layer)].has(role.other_part))
    return tensor_name(role.other_name, block);
  return name_in_file(*config.architecture, role, block);
}

}  // namespace llm
