// The parts of a layer that look at other positions: RoPE, the cache, attention.

#include <algorithm>

#include "engine/forward/forward.h"

namespace llm {

/// Tasks: rows of K and the same rows of V, then rows of q; whole heads, so that one task can
/// finish what the next op needs.
void Forward::project_heads(const Pass& pass, Worker worker, std::size_t layer,
                            const InputRows& input) {
  const LayerWeights& w = weights_.layers[layer];
  const RowTasks kv = tasks_of(w.attn_k, input.n, worker, config_.head_dim);
  const RowTasks q = tasks_of(w.attn_q, input.n, worker, config_.head_dim);
  const auto project = [&](const PackedMatrix& matrix, std::span<const float> bias, TaskRows rows,
                           float* y) {
    product(worker, PassOp::kQkv, matrix, rows, input, y, Epilogue::kStore);
    add_bias(matrix, bias, rows, input.n, y);
  };
  const auto rotate = [&](std::size_t i) {
    if (i < kv.size()) return rotate_and_store(pass, worker, layer, kv[i]);
    rotate_queries(pass, worker, layer, q[i - kv.size()]);
  };
  run_tasks(worker, kv.size() + q.size(), [&](std::size_t i) {
    if (i < kv.size()) {
      project(w.attn_k, w.attn_k_bias.span(), kv[i], k_.data());
      project(w.attn_v, w.attn_v_bias.span(), kv[i], v_.data());
    } else {
      project(w.attn_q, w.attn_q_bias.span(), q[i - kv.size()], q_.data());
    }
    if (pass.probe == nullptr) rotate(i);
  });
  if (pass.probe == nullptr) return;
  const int id = static_cast<int>(layer);
  tap(pass, worker, id, "q", q_.data(), config_.q_rows());
  tap(pass, worker, id, "k", k_.data(), config_.kv_rows());
  tap(pass, worker, id, "v", v_.data(), config_.kv_rows());
  run_tasks(worker, kv.size() + q.size(), rotate);
  tap(pass, worker, id, "q_rope", q_.data(), config_.q_rows());
  tap(pass, worker, id, "k_rope", k_.data(), config_.kv_rows());
}

void Forward::norm_heads(std::span<const float> weight, Worker::Range rows, float* x) const {
  if (weight.empty()) return;
  for (std::size_t head = rows.begin; head < rows.end; head += weight.size())
    kernels_.rms_norm(x + head, weight.data(), weight.size(), config_.norm_eps, x + head);
}

void Forward::rotate_queries(const Pass& pass, Worker worker, std::size_t layer,
                             Worker::Range rows) {
  for (std::size_t t = 0; t < pass.rows.size(); ++t) {
    float* q = q_.data() + t * config_.q_rows();
    norm_heads(weights_.layers[layer].attn_q_norm.span(), rows, q);
    kernels_.rope(q, rows.begin, rows.end, config_.head_dim, cos_.data() + t * rope_.pairs(),
                  sin_.data() + t * rope_.pairs(), rope_.pairs());
  }
  clock(worker).lap(PassOp::kRope);
}

void Forward::rotate_and_store(const Pass& pass, Worker worker, std::size_t layer,
                               Worker::Range rows) {
  const auto [begin, end] = rows;
  const std::size_t n = end - begin;
  const KvRounding rounding{kernels_.to_half, kernels_.quantize_q8x32};
  for (std::size_t t = 0; t < pass.rows.size(); ++t) {
    float* k = k_.data() + t * config_.kv_rows();
    const float* v = v_.data() + t * config_.kv_rows();
    norm_heads(weights_.layers[layer].attn_k_norm.span(), rows, k);
    kernels_.rope(k, begin, end, config_.head_dim, cos_.data() + t * rope_.pairs(),
                  sin_.data() + t * rope_.pairs(), rope_.pairs());
    pass.rows[t].segment->cache->store(layer, begin, pass.rows[t].position, {k + begin, n},
                                       {v + begin, n}, rounding);
  }
  clock(worker).lap(PassOp::kRope);
}

void Forward::attend(const Pass& pass, Worker worker, std::size_t layer) {
  if (pass.rows.size() == 1) {
    attend_one_row(pass.rows[0], worker, layer);
  } else {
    attend_blocks(pass, worker, layer);
  }
}

/// Tasks: (block of rows, KV head), each over all its chunks; the last rows, which see most, first.
void Forward::attend_blocks(const Pass& pass, Worker worker, std::size_t layer) {
  const std::size_t head_dim = config_.head_dim;
  const std::size_t heads_per_kv = config_.n_heads / config_.n_kv_heads;
  float* const partial = scratch_[static_cast<std::size_t>(worker.id)].partial.data();
  float* const context = batch_inputs_.context.data();
  const std::size_t n_tasks = pass.blocks.size() * config_.n_kv_heads;
  run_tasks(worker, n_tasks, [&](std::size_t i) {
    const std::size_t task = n_tasks - 1 - i;
    const std::size_t kv_head = task % config_.n_kv_heads;
    const Block& block = pass.blocks[task / config_.n_kv_heads];
    const Row& first = pass.rows[block.first_row];
    const std::size_t n_chunks = KvPool::pages_for(first.position + block.n_rows);
    attend_heads(first, block.first_row, block.n_rows, kv_head, 0, n_chunks, partial, worker,
                 layer);
    for (std::size_t j = 0; j < block.n_rows * heads_per_kv; ++j) {
      const std::size_t row = block.first_row + j / heads_per_kv;
      const std::size_t head = kv_head * heads_per_kv + j % heads_per_kv;
      kernels_.finish(partial + j * (2 + head_dim), head_dim,
                      context + row * config_.q_rows() + head * head_dim);
    }
    clock(worker).lap(PassOp::kAttention);
  });
}

/// Tasks: (chunk, KV head), so that a long context has work for all. Afterwards every worker merges
/// the chunks into a context of its own.
void Forward::attend_one_row(const Row& row, Worker worker, std::size_t layer) {
  const std::size_t head_dim = config_.head_dim;
  const std::size_t heads_per_kv = config_.n_heads / config_.n_kv_heads;
  const std::size_t partial_size = 2 + head_dim;
  const std::size_t n_chunks = KvPool::pages_for(row.position + 1);
  run_tasks(worker, n_chunks * config_.n_kv_heads, [&](std::size_t task) {
    const std::size_t kv_head = task % config_.n_kv_heads;
    const std::size_t chunk = task / config_.n_kv_heads;
    const std::size_t slot = chunk * config_.n_heads + kv_head * heads_per_kv;
    attend_heads(row, 0, 1, kv_head, chunk, chunk + 1, partial_.data() + slot * partial_size,
                 worker, layer);
    clock(worker).lap(PassOp::kAttention);
  });
  Scratch& scratch = scratch_[static_cast<std::size_t>(worker.id)];
  for (std::size_t head = 0; head < config_.n_heads; ++head) {
    const float* first = partial_.data() + head * partial_size;
    float* sum = scratch.partial.data();
    std::copy_n(first, partial_size, sum);
    for (std::size_t chunk = 1; chunk < n_chunks; ++chunk) {
      kernels_.merge(sum, first + chunk * config_.n_heads * partial_size, head_dim);
    }
    kernels_.finish(sum, head_dim, scratch.inputs.context.data() + head * head_dim);
  }
}

void Forward::attend_heads(const Row& first, std::size_t first_row, std::size_t n_rows,
                           std::size_t kv_head, std::size_t chunk_begin, std::size_t chunk_end,
                           float* partial, Worker worker, std::size_t layer) {
  const std::size_t heads_per_kv = config_.n_heads / config_.n_kv_heads;
  const KvCache& cache = *first.segment->cache;
  kernels_.attend(
      {.q = q_.data() + first_row * config_.q_rows() + kv_head * heads_per_kv * config_.head_dim,
       .q_stride = config_.q_rows(),
       .pages = cache.pages(),
       .keys_offset = cache.pool().keys_offset(layer, kv_head),
       .values_offset = cache.pool().values_offset(layer, kv_head),
       .layout = cache.pool().layout(),
       .n_heads = heads_per_kv,
       .n_tokens = n_rows,
       .first_position = first.position,
       .chunk_begin = chunk_begin,
       .chunk_end = chunk_end,
       .partial = partial,
       .workspace = scratch_[static_cast<std::size_t>(worker.id)].attention.data()});
}

}  // namespace llm
