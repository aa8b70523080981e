#include "engine/forward/attention.h"

#include <algorithm>

#include "quant/numerics/delta_net.h"

namespace llm {

Result<Attention> Attention::create(const Model& model, const PassSizes& sizes) {
  Attention part(model);
  const HyperParameters& config = model.config();
  const std::size_t t = sizes.max_batch;
  for (const Rope& rope : model.ropes())
    part.most_pairs_ = std::max(part.most_pairs_, rope.pairs());
  const std::size_t angles = config.ropes.size() * t * part.most_pairs_;
  const std::size_t chunks = KvGroups::pages_for(sizes.context);
  part.max_batch_ = t;
  LLM_TRY(part.q_, allocate_activations(t * config.most(&LayerSpec::q_rows)));
  LLM_TRY(part.k_, allocate_activations(t * config.most(&LayerSpec::kv_rows)));
  LLM_TRY(part.v_, allocate_activations(t * config.most(&LayerSpec::kv_rows)));
  LLM_TRY(part.ones_, allocate_activations(config.most(&LayerSpec::head_dim)));
  std::ranges::fill(part.ones_.span(), 1.0F);
  LLM_TRY(part.context_, allocate_activations(t * config.most(&LayerSpec::q_rows)));
  LLM_TRY(part.cos_, allocate_activations(angles));
  LLM_TRY(part.sin_, allocate_activations(angles));
  LLM_TRY(part.q_scale_, allocate_activations(config.ropes.size() * t));
  const bool has_gates = std::ranges::any_of(
      config.layers, [](const LayerSpec& layer) { return layer.has(LayerPart::kOutputGate); });
  const std::size_t gates = has_gates ? config.most(&LayerSpec::q_rows) : 0;
  LLM_TRY(part.gate_, allocate_activations(t * gates));
  // Partial results: of a row, of the rows and heads that attend together, of a head.
  std::size_t of_row = 0;
  std::size_t of_block = 0;
  std::size_t workspace = 0;
  for (std::size_t i = 0; i < config.n_layers; ++i) {
    const AttentionSpec* spec = config.layers[i].attention();
    if (spec == nullptr) continue;
    const std::size_t queries = kAttendRows * spec->heads_per_kv();
    of_row = std::max(of_row, spec->n_heads * (2 + spec->head_dim));
    of_block = std::max(of_block, queries * (2 + spec->head_dim));
    workspace = std::max(workspace, attend_workspace_bytes({sizes.kv, spec->head_dim}, queries));
  }
  LLM_TRY(part.partial_, allocate_activations(chunks * of_row));
  for (int i = 0; i < model.threads(); ++i) {
    Scratch scratch;
    LLM_TRY(scratch.attention, Workspace::allocate(workspace, "workspace"));
    LLM_TRY(scratch.partial, allocate_activations(of_block));
    LLM_TRY(scratch.sink, allocate_activations(2 + config.most(&LayerSpec::head_dim)));
    scratch.sink[1] = 1;
    LLM_TRY(scratch.context, allocate_activations(config.most(&LayerSpec::q_rows)));
    LLM_TRY(scratch.gated, allocate_activations(gates));
    part.scratch_.push_back(std::move(scratch));
  }
  return part;
}

void Attention::plan(std::span<const PassSegment> segments) {
  blocks_.clear();
  std::size_t row = 0;
  for (const PassSegment& segment : segments) {
    const std::size_t n = segment.tokens.size();
    for (std::size_t t = 0; t < n; t += kAttendRows)
      blocks_.push_back({row + t, std::min(kAttendRows, n - t)});
    row += n;
  }
}

void Attention::set_angles(std::size_t t, std::size_t position) {
  if (config_.has_trunk()) ++position;  // the token is behind the last key
  for (std::size_t i = 0; i < ropes_.size(); ++i) {
    const std::size_t at = (i * max_batch_ + t) * most_pairs_;
    ropes_[i].angles(position, cos_.span().subspan(at, ropes_[i].pairs()),
                     sin_.span().subspan(at, ropes_[i].pairs()));
    q_scale_[i * max_batch_ + t] = ropes_[i].query_scale(position);
  }
}

void Attention::run(PassWorker& at, std::size_t layer) {
  const LayerWeights& w = weights_.layers[layer];
  const InputRows normed =
      at.norm_rows(w.attn_norm.span(), {&w.attn_q, &w.attn_q_gate, &w.attn_k, &w.attn_v});
  if (!w.attn_norm.span().empty()) at.tap(layer, "attn_norm", normed.f32, normed.features);
  project_heads(at, layer, normed);
  float* context = attend(at, layer);
  const std::size_t q_rows = spec(layer).q_rows();
  at.tap(layer, "attn_ctx", context, q_rows);
  if (spec(layer).has_gate()) {
    context = gate(at, layer, context);
    at.tap(layer, "attn_gated", context, q_rows);
  }
  const InputRows input = at.load_rows(PassOp::kMerge, context, q_rows, {&w.attn_output});
  at.add_product(PassOp::kAttnOutput, w.attn_output, input, w.attn_post_norm.span(), layer,
                 {"attn_out", "attn_post"}, w.attn_output_bias.span());
  at.tap_residual(layer, "ffn_inp");
}

/// Tasks: rows of K and the same rows of V, then rows of q; whole heads, so that one task can
/// finish what the next op needs.
void Attention::project_heads(PassWorker& at, std::size_t layer, const InputRows& input) {
  const LayerWeights& w = weights_.layers[layer];
  const bool has_keys = !spec(layer).kv_of_layer;
  const RowTasks kv = at.tasks_of(has_keys ? w.attn_k : w.attn_q, input.n, spec(layer).head_dim);
  const RowTasks q = at.tasks_of(w.attn_q, input.n, spec(layer).head_dim);
  const std::size_t n_kv = has_keys ? kv.size() : 0;
  // Of gates that have rows of their own; others have one beside each row of q.
  const bool gates_heads = spec(layer).output_gate == OutputGate::kHeadSoftplus;
  const RowTasks gates = at.tasks_of(gates_heads ? w.attn_q_gate : w.attn_q, input.n);
  const std::size_t n_gates = gates_heads ? gates.size() : 0;
  // A norm of a whole row waits for all of its heads.
  const bool rotates_at_once = !at.has_probe() && !spec(layer).norms_rows;
  const auto rotate_task = [&](std::size_t i) {
    if (i < n_kv) return rotate_and_store(at, layer, kv[i]);
    rotate_queries(at, layer, q[i - n_kv]);
  };
  at.run_tasks(n_kv + q.size() + n_gates, [&](std::size_t i) {
    if (i >= n_kv + q.size())
      return at.product(PassOp::kQkv, w.attn_q_gate, gates[i - n_kv - q.size()], input,
                        gate_.data());
    if (i < n_kv) {
      at.product(PassOp::kQkv, w.attn_k, w.attn_k_bias.span(), kv[i], input, k_.data());
      at.product(PassOp::kQkv, w.attn_v, w.attn_v_bias.span(), kv[i], input, v_.data());
    } else {
      at.product(PassOp::kQkv, w.attn_q, w.attn_q_bias.span(), q[i - n_kv], input, q_.data());
      if (spec(layer).has_gate() && !gates_heads)
        at.product(PassOp::kQkv, w.attn_q_gate, q[i - n_kv], input, gate_.data());
    }
    if (rotates_at_once) rotate_task(i);
  });
  if (rotates_at_once) return;
  at.tap(layer, "q", q_.data(), spec(layer).q_rows());
  if (has_keys) at.tap(layer, "k", k_.data(), spec(layer).kv_rows());
  if (has_keys) at.tap(layer, "v", v_.data(), spec(layer).kv_rows());
  if (spec(layer).has_gate()) at.tap(layer, "attn_gate", gate_.data(), spec(layer).gate_rows());
  if (spec(layer).norms_rows) norm_whole_rows(at, layer);
  at.run_tasks(n_kv + q.size(), rotate_task);
  at.tap(layer, "q_rope", q_.data(), spec(layer).q_rows());
  if (has_keys) at.tap(layer, "k_rope", k_.data(), spec(layer).kv_rows());
  if (has_keys && spec(layer).value_norm) at.tap(layer, "v_norm", v_.data(), spec(layer).kv_rows());
}

void Attention::norm_whole_rows(PassWorker& at, std::size_t layer) {
  const auto norm = [&](const AlignedBuffer<float>& weight, float* row) {
    at.kernels().rms_norm(row, weight.data(), weight.size(), config_.norm_eps, row);
  };
  at.run_tasks(at.rows().size(), [&](std::size_t t) {
    norm(weights_.layers[layer].attn_q_norm, q_.data() + t * spec(layer).q_rows());
    norm(weights_.layers[layer].attn_k_norm, k_.data() + t * spec(layer).kv_rows());
    at.lap(PassOp::kNorm);
  });
}

void Attention::rotate(const PassWorker& at, std::size_t layer, std::size_t t,
                       std::span<const float> norm, Worker::Range rows, float* x) const {
  if (spec(layer).norms_rows) norm = {};  // norm_whole_rows() was before
  const auto norm_heads = [&] {
    for (std::size_t head = rows.begin; head < rows.end && !norm.empty(); head += norm.size())
      at.kernels().rms_norm(x + head, norm.data(), norm.size(), config_.norm_eps, x + head);
  };
  if (!spec(layer).rotates_first) norm_heads();
  const std::size_t rope = spec(layer).rope;
  const std::size_t angles = (rope * max_batch_ + t) * most_pairs_;
  at.kernels().rope(x, rows.begin, rows.end, spec(layer).head_dim, cos_.data() + angles,
                    sin_.data() + angles, ropes_[rope].pairs());
  if (spec(layer).rotates_first) norm_heads();
}

void Attention::rotate_queries(PassWorker& at, std::size_t layer, Worker::Range rows) {
  const std::span<const float> norm = weights_.layers[layer].attn_q_norm.span();
  for (std::size_t t = 0; t < at.rows().size(); ++t) {
    float* const q = q_.data() + t * spec(layer).q_rows();
    rotate(at, layer, t, norm, rows, q);
    const float scale = q_scale_[spec(layer).rope * max_batch_ + t];
    for (std::size_t i = rows.begin; i < rows.end && scale != 1.0F; ++i) q[i] *= scale;
  }
  at.lap(PassOp::kRope);
}

void Attention::rotate_and_store(PassWorker& at, std::size_t layer, Worker::Range rows) {
  const auto [begin, end] = rows;
  const std::size_t n = end - begin;
  const std::span<const float> norm = weights_.layers[layer].attn_k_norm.span();
  const KvRounding rounding{at.kernels().to_half, at.kernels().quantize_q8x32};
  for (std::size_t t = 0; t < at.rows().size(); ++t) {
    const PassRow& row = at.rows()[t];
    float* k = k_.data() + t * spec(layer).kv_rows();
    float* v = v_.data() + t * spec(layer).kv_rows();
    rotate(at, layer, t, norm, rows, k);
    const std::size_t head_dim = spec(layer).head_dim;
    for (std::size_t head = begin; head < end && spec(layer).value_norm; head += head_dim)
      at.kernels().rms_norm(v + head, ones_.data(), head_dim, config_.norm_eps, v + head);
    if (at.kv_filter() != nullptr) {
      at.kv_filter()({k + begin, n}, spec(layer).head_dim);
      at.kv_filter()({v + begin, n}, spec(layer).head_dim);
    }
    row.segment->state->store(layer, begin, row.position, {k + begin, n}, {v + begin, n}, rounding);
  }
  at.lap(PassOp::kRope);
}

std::size_t Attention::first_chunk(std::size_t layer, std::size_t position) const {
  return KvGroups::first_page(spec(layer).window, position);
}

float* Attention::gate(PassWorker& at, std::size_t layer, float* context) {
  const std::size_t n = spec(layer).q_rows();
  if (spec(layer).output_gate != OutputGate::kSigmoid) {
    const std::size_t n_gates = spec(layer).gate_rows();
    const auto scale = [&](std::size_t t, float* row) {
      for (std::size_t g = 0; g < n_gates; ++g) {
        const float factor = contract::softplus(gate_[t * n_gates + g]);
        for (std::size_t i = n / n_gates * g; i < n / n_gates * (g + 1); ++i) row[i] *= factor;
      }
    };
    if (at.rows().size() == 1) {  // each worker's own
      scale(0, context);
      return context;
    }
    at.run_tasks(at.rows().size(), [&](std::size_t t) {
      scale(t, context + t * n);
      at.lap(PassOp::kMerge);
    });
    return context;
  }
  if (at.rows().size() == 1) {
    float* const gated = own(at).gated.data();
    std::copy_n(gate_.data(), n, gated);
    at.kernels().activate(Activation::kSigmoid, gated, context, n);
    return gated;
  }
  at.run_tasks(at.rows().size(), [&](std::size_t t) {
    at.kernels().activate(Activation::kSigmoid, gate_.data() + t * n, context + t * n, n);
    at.lap(PassOp::kMerge);
  });
  return gate_.data();
}

float* Attention::attend(PassWorker& at, std::size_t layer) {
  if (at.rows().size() == 1) {
    attend_one_row(at, layer);
    return own(at).context.data();
  }
  attend_blocks(at, layer);
  return context_.data();
}

/// Tasks: (block of rows, KV head), each over all its chunks; the last rows, which see most, first.
void Attention::attend_blocks(PassWorker& at, std::size_t layer) {
  const AttentionSpec& spec = config_.attention(layer);
  const std::size_t head_dim = spec.head_dim;
  const std::size_t heads_per_kv = spec.heads_per_kv();
  float* const partial = own(at).partial.data();
  const std::size_t n_tasks = blocks_.size() * spec.n_kv_heads;
  at.run_tasks(n_tasks, [&](std::size_t i) {
    const std::size_t task = n_tasks - 1 - i;
    const std::size_t kv_head = task % spec.n_kv_heads;
    const Block block = blocks_[task / spec.n_kv_heads];
    const std::size_t first = at.rows()[block.first_row].position;
    attend_heads(at, layer, block, kv_head, first_chunk(layer, first),
                 KvGroups::pages_for(first + block.n_rows), partial);
    for (std::size_t j = 0; j < block.n_rows * heads_per_kv; ++j) {
      const std::size_t row = block.first_row + j / heads_per_kv;
      const std::size_t head = kv_head * heads_per_kv + j % heads_per_kv;
      finish_head(at, layer, head, partial + j * (2 + head_dim),
                  context_.data() + row * spec.q_rows() + head * head_dim);
    }
    at.lap(PassOp::kAttention);
  });
}

/// Tasks: (chunk, KV head), so that a long context has work for all. Afterwards every worker merges
/// the chunks into a context of its own.
void Attention::attend_one_row(PassWorker& at, std::size_t layer) {
  const AttentionSpec& spec = config_.attention(layer);
  const std::size_t head_dim = spec.head_dim;
  const std::size_t partial_size = 2 + head_dim;
  const std::size_t begin = first_chunk(layer, at.rows()[0].position);
  const std::size_t n_chunks = KvGroups::pages_for(at.rows()[0].position + 1) - begin;
  at.run_tasks(n_chunks * spec.n_kv_heads, [&](std::size_t task) {
    const std::size_t kv_head = task % spec.n_kv_heads;
    const std::size_t chunk = begin + task / spec.n_kv_heads;
    const std::size_t slot = (chunk - begin) * spec.n_heads + kv_head * spec.heads_per_kv();
    attend_heads(at, layer, {0, 1}, kv_head, chunk, chunk + 1,
                 partial_.data() + slot * partial_size);
    at.lap(PassOp::kAttention);
  });
  for (std::size_t head = 0; head < spec.n_heads; ++head) {
    const float* first = partial_.data() + head * partial_size;
    float* sum = own(at).partial.data();
    std::copy_n(first, partial_size, sum);
    for (std::size_t chunk = 1; chunk < n_chunks; ++chunk) {
      at.kernels().merge(sum, first + chunk * spec.n_heads * partial_size, head_dim);
    }
    finish_head(at, layer, head, sum, own(at).context.data() + head * head_dim);
  }
}

void Attention::finish_head(const PassWorker& at, std::size_t layer, std::size_t head, float* sum,
                            float* context) {
  const std::size_t head_dim = config_.attention(layer).head_dim;
  if (const auto sinks = weights_.layers[layer].attn_sinks.span(); !sinks.empty()) {
    float* const sink = own(at).sink.data();
    sink[0] = sinks[head];
    at.kernels().merge(sum, sink, head_dim);
  }
  at.kernels().finish(sum, head_dim, context);
}

void Attention::attend_heads(PassWorker& at, std::size_t layer, Block block, std::size_t kv_head,
                             std::size_t chunk_begin, std::size_t chunk_end, float* partial) {
  const PassRow& first = at.rows()[block.first_row];
  const SequenceState& state = config_.has_trunk() ? *first.segment->trunk : *first.segment->state;
  const std::size_t from = keys_layer(layer);
  const AttentionSpec& spec = config_.attention(layer);
  const std::size_t column = kv_head * spec.heads_per_kv() * spec.head_dim;
  at.kernels().attend({.q = q_.data() + block.first_row * spec.q_rows() + column,
                       .q_stride = spec.q_rows(),
                       .pages = state.pages(from).data(),
                       .keys_offset = state.pool().keys_offset(from, kv_head),
                       .values_offset = state.pool().values_offset(from, kv_head),
                       .layout = state.pool().layout(from),
                       .n_heads = spec.heads_per_kv(),
                       .n_tokens = block.n_rows,
                       .first_position = first.position,
                       .window = spec.window,
                       .chunk_begin = chunk_begin,
                       .chunk_end = chunk_end,
                       .scale = spec.scale,
                       .cap = spec.score_cap,
                       .partial = partial,
                       .workspace = own(at).attention.data()});
}

}  // namespace llm
