// The parts of a layer that look at other positions: RoPE, the cache, attention.

#include <algorithm>

#include "engine/forward/forward.h"

namespace llm {

Worker::Range Forward::rows_to_rotate(Worker worker, const PackedMatrix& w, std::size_t n,
                                      bool normed) const {
  if (!normed) return matmul_rows(worker, w, n);
  const auto [begin, end] = worker.share(w.n_rows() / config_.head_dim);
  return {begin * config_.head_dim, end * config_.head_dim};
}

void Forward::norm_heads(std::span<const float> weight, Worker::Range rows, float* x) const {
  if (weight.empty()) return;
  for (std::size_t head = rows.begin; head < rows.end; head += weight.size())
    kernels_.rms_norm(x + head, weight.data(), weight.size(), config_.norm_eps, x + head);
}

void Forward::rotate_and_store(const Pass& pass, Worker worker, std::size_t layer) {
  const LayerWeights& w = weights_.layers[layer];
  const bool normed = w.attn_q_norm.size() + w.attn_k_norm.size() > 0;
  if (normed) worker.barrier();  // heads of several workers
  // What a worker computed it also rotates and stores: shares begin and end at even rows, and K and
  // V have equally many.
  const Worker::Range q_own = rows_to_rotate(worker, w.attn_q, pass.rows.size(), normed);
  const Worker::Range k_own = rows_to_rotate(worker, w.attn_k, pass.rows.size(), normed);
  const std::size_t n_own = k_own.end - k_own.begin;
  const std::span<std::uint16_t> half = scratch_[static_cast<std::size_t>(worker.id)].half.span();
  for (std::size_t t = 0; t < pass.rows.size(); ++t) {
    const auto& [segment, token, position] = pass.rows[t];
    const float* cos = cos_.data() + t * rope_.pairs();
    const float* sin = sin_.data() + t * rope_.pairs();
    float* k = k_.data() + t * config_.kv_rows();
    const float* v = v_.data() + t * config_.kv_rows();
    float* q = q_.data() + t * config_.q_rows();
    norm_heads(w.attn_q_norm.span(), q_own, q);
    norm_heads(w.attn_k_norm.span(), k_own, k);
    kernels_.rope(q, q_own.begin, q_own.end, config_.head_dim, cos, sin, rope_.pairs());
    kernels_.rope(k, k_own.begin, k_own.end, config_.head_dim, cos, sin, rope_.pairs());
    KvCache& cache = *segment->cache;
    if (cache.pool().type() == KvType::kF32) {
      cache.store(layer, k_own.begin, position, {k + k_own.begin, n_own}, {v + k_own.begin, n_own});
      continue;
    }
    kernels_.to_half(k + k_own.begin, n_own, half.data());
    kernels_.to_half(v + k_own.begin, n_own, half.data() + n_own);
    cache.store_half(layer, k_own.begin, position, half.first(n_own), half.subspan(n_own, n_own));
  }
  worker.barrier();
}

void Forward::attend(const Pass& pass, Worker worker, std::size_t layer) {
  if (pass.rows.size() == 1) {
    attend_one_row(pass.rows[0], worker, layer);
  } else {
    attend_blocks(pass, worker, layer);
  }
}

/// Tasks: (block of rows, KV head), each over all its chunks.
void Forward::attend_blocks(const Pass& pass, Worker worker, std::size_t layer) {
  const std::size_t head_dim = config_.head_dim;
  const std::size_t heads_per_kv = config_.n_heads / config_.n_kv_heads;
  const auto workers = static_cast<std::size_t>(worker.count);
  float* const partial = scratch_[static_cast<std::size_t>(worker.id)].partial.data();
  float* const context = batch_inputs_.context.data();
  for (auto task = static_cast<std::size_t>(worker.id);
       task < pass.blocks.size() * config_.n_kv_heads; task += workers) {
    const std::size_t kv_head = task % config_.n_kv_heads;
    const Block& block = pass.blocks[task / config_.n_kv_heads];
    const Row& first = pass.rows[block.first_row];
    const std::size_t n_chunks = KvPool::pages_for(first.position + block.n_rows);
    attend_heads(first, block.first_row, block.n_rows, kv_head, 0, n_chunks, partial, worker,
                 layer);
    for (std::size_t i = 0; i < block.n_rows * heads_per_kv; ++i) {
      const std::size_t row = block.first_row + i / heads_per_kv;
      const std::size_t head = kv_head * heads_per_kv + i % heads_per_kv;
      kernels_.finish(partial + i * (2 + head_dim), head_dim,
                      context + row * config_.q_rows() + head * head_dim);
    }
  }
  worker.barrier();
}

/// Tasks: (chunk, KV head), so that a long context has work for all. Afterwards every worker merges
/// the chunks into a context of its own.
void Forward::attend_one_row(const Row& row, Worker worker, std::size_t layer) {
  const std::size_t head_dim = config_.head_dim;
  const std::size_t heads_per_kv = config_.n_heads / config_.n_kv_heads;
  const std::size_t partial_size = 2 + head_dim;
  const std::size_t n_chunks = KvPool::pages_for(row.position + 1);
  const auto workers = static_cast<std::size_t>(worker.count);
  for (auto task = static_cast<std::size_t>(worker.id); task < n_chunks * config_.n_kv_heads;
       task += workers) {
    const std::size_t kv_head = task % config_.n_kv_heads;
    const std::size_t chunk = task / config_.n_kv_heads;
    const std::size_t slot = chunk * config_.n_heads + kv_head * heads_per_kv;
    attend_heads(row, 0, 1, kv_head, chunk, chunk + 1, partial_.data() + slot * partial_size,
                 worker, layer);
  }
  worker.barrier();
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
       .half = cache.pool().type() == KvType::kF16,
       .head_dim = config_.head_dim,
       .n_heads = heads_per_kv,
       .n_tokens = n_rows,
       .first_position = first.position,
       .chunk_begin = chunk_begin,
       .chunk_end = chunk_end,
       .partial = partial,
       .workspace = scratch_[static_cast<std::size_t>(worker.id)].attention.data()});
}

}  // namespace llm
