#include "engine/forward/reference/forward.h"

#include <string_view>
#include <vector>

#include "base/check.h"
#include "engine/forward/reference/ops.h"
#include "quant/formats/dequantize.h"

namespace llm::reference {

/// Activations of T tokens; every matrix is (T, features), row-major.
struct Forward::Activations {
  std::size_t n_tokens = 0;
  std::size_t first_position = 0;
  ProbeSink* probe = nullptr;
  std::vector<float> x;        ///< residual stream, D
  std::vector<float> normed;   ///< D
  std::vector<float> q;        ///< n_heads * head_dim
  std::vector<float> k;        ///< n_kv_heads * head_dim
  std::vector<float> v;        ///< n_kv_heads * head_dim
  std::vector<float> context;  ///< n_heads * head_dim
  std::vector<float> gate;     ///< d_ff
  std::vector<float> up;       ///< d_ff
  std::vector<float> out;      ///< D

  void tap(int layer, std::string_view name, std::span<float> values) const {
    if (probe != nullptr) probe->tap(layer, name, values, values.size() / n_tokens, 0);
  }
};

namespace {

/// Row t of a (T, features) matrix.
std::span<float> row(std::vector<float>& matrix, std::size_t t, std::size_t n_tokens) {
  const std::size_t features = matrix.size() / n_tokens;
  return std::span(matrix).subspan(t * features, features);
}

}  // namespace

void Forward::run(std::span<const TokenId> tokens, std::size_t first_position, KvCache& cache,
                  std::span<float> logits, ProbeSink* probe) const {
  Activations a;
  a.n_tokens = tokens.size();
  a.first_position = first_position;
  a.probe = probe;
  if (probe != nullptr) probe->begin_step(tokens, first_position);

  embed(tokens, a);
  for (std::size_t layer = 0; layer < config_.n_layers; ++layer) {
    run_attention(layer, cache, a);
    run_ffn(layer, a);
  }

  const std::size_t n_rows = logits.size() / config_.n_vocab;
  if (n_rows == 0) return;
  const std::size_t first = a.n_tokens - n_rows;
  std::vector<float> normed(n_rows * config_.d_model);
  for (std::size_t t = 0; t < n_rows; ++t) {
    rms_norm(row(a.x, first + t, a.n_tokens), weights_.output_norm.span(), config_.norm_eps,
             row(normed, t, n_rows));
  }
  matmul(weights_.output(), compute_, normed, logits);
  if (probe != nullptr) {
    probe->tap(ProbeSink::kGlobal, "result_norm", normed, config_.d_model, first);
    probe->tap(ProbeSink::kGlobal, "logits", logits, config_.n_vocab, first);
  }
}

void Forward::embed(std::span<const TokenId> tokens, Activations& a) const {
  const PackedMatrix& table = weights_.token_embd;
  std::vector<std::byte> packed_row(row_bytes(table.type(), config_.d_model));
  a.x.resize(tokens.size() * config_.d_model);
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    table.extract_row(static_cast<std::size_t>(tokens[t]), packed_row);
    contract::dequantize_row(table.type(), packed_row, row(a.x, t, a.n_tokens));
  }
  a.tap(ProbeSink::kGlobal, "embd", a.x);
}

void Forward::run_attention(std::size_t layer, KvCache& cache, Activations& a) const {
  const LayerWeights& w = weights_.layers[layer];
  const std::size_t n_tokens = a.n_tokens;
  const std::size_t head_dim = config_.head_dim;
  const int id = static_cast<int>(layer);
  a.normed.resize(a.x.size());
  a.q.resize(n_tokens * config_.q_rows());
  a.k.resize(n_tokens * config_.kv_rows());
  a.v.resize(n_tokens * config_.kv_rows());
  a.context.resize(a.q.size());
  a.out.resize(a.x.size());

  for (std::size_t t = 0; t < n_tokens; ++t) {
    rms_norm(row(a.x, t, n_tokens), w.attn_norm.span(), config_.norm_eps,
             row(a.normed, t, n_tokens));
  }
  a.tap(id, "attn_norm", a.normed);
  matmul(w.attn_q, compute_, a.normed, a.q);
  matmul(w.attn_k, compute_, a.normed, a.k);
  matmul(w.attn_v, compute_, a.normed, a.v);
  for (std::size_t t = 0; t < n_tokens; ++t) {
    if (w.attn_q_bias.size() > 0) add(w.attn_q_bias.span(), row(a.q, t, n_tokens));
    if (w.attn_k_bias.size() > 0) add(w.attn_k_bias.span(), row(a.k, t, n_tokens));
    if (w.attn_v_bias.size() > 0) add(w.attn_v_bias.span(), row(a.v, t, n_tokens));
  }
  a.tap(id, "q", a.q);
  a.tap(id, "k", a.k);
  a.tap(id, "v", a.v);

  std::vector<float> cos(rope_.pairs());
  std::vector<float> sin(rope_.pairs());
  for (std::size_t t = 0; t < n_tokens; ++t) {
    rope_.angles(a.first_position + t, cos, sin);
    const float eps = config_.norm_eps;
    if (w.attn_q_norm.size() > 0) norm_heads(row(a.q, t, n_tokens), w.attn_q_norm.span(), eps);
    if (w.attn_k_norm.size() > 0) norm_heads(row(a.k, t, n_tokens), w.attn_k_norm.span(), eps);
    rope(row(a.q, t, n_tokens), head_dim, cos, sin);
    rope(row(a.k, t, n_tokens), head_dim, cos, sin);
    cache.store(layer, 0, a.first_position + t, row(a.k, t, n_tokens), row(a.v, t, n_tokens));
  }
  a.tap(id, "q_rope", a.q);
  a.tap(id, "k_rope", a.k);

  const std::size_t heads_per_kv = config_.n_heads / config_.n_kv_heads;
  for (std::size_t t = 0; t < n_tokens; ++t) {
    for (std::size_t head = 0; head < config_.n_heads; ++head) {
      attend(row(a.q, t, n_tokens).subspan(head * head_dim, head_dim), cache, layer,
             head / heads_per_kv, a.first_position + t,
             row(a.context, t, n_tokens).subspan(head * head_dim, head_dim));
    }
  }
  a.tap(id, "attn_ctx", a.context);
  matmul(w.attn_output, compute_, a.context, a.out);
  a.tap(id, "attn_out", a.out);
  add(a.out, a.x);
  a.tap(id, "ffn_inp", a.x);
}

void Forward::run_ffn(std::size_t layer, Activations& a) const {
  const LayerWeights& w = weights_.layers[layer];
  const std::size_t n_tokens = a.n_tokens;
  const int id = static_cast<int>(layer);
  a.gate.resize(n_tokens * config_.d_ff);
  a.up.resize(n_tokens * config_.d_ff);

  for (std::size_t t = 0; t < n_tokens; ++t) {
    rms_norm(row(a.x, t, n_tokens), w.ffn_norm.span(), config_.norm_eps,
             row(a.normed, t, n_tokens));
  }
  a.tap(id, "ffn_norm", a.normed);
  matmul(w.ffn_gate, compute_, a.normed, a.gate);
  matmul(w.ffn_up, compute_, a.normed, a.up);
  a.tap(id, "gate", a.gate);
  a.tap(id, "up", a.up);
  silu_mul(a.gate, a.up, a.gate);
  a.tap(id, "ffn_act", a.gate);
  matmul(w.ffn_down, compute_, a.gate, a.out);
  a.tap(id, "ffn_out", a.out);
  add(a.out, a.x);
  a.tap(id, "l_out", a.x);
}

}  // namespace llm::reference
