#include "engine/forward/forward.h"

#include <algorithm>

#include "base/check.h"
#include "quant/formats/dequantize.h"

namespace llm {
namespace {

/// Tokens of a batch that one attention task covers.
constexpr std::size_t kAttendTokens = 32;
constexpr std::size_t kChunk = 256;

Status allocate_floats(AlignedBuffer<float>& buffer, std::uint64_t count) {
  LLM_TRY(buffer, AlignedBuffer<float>::allocate(count, "activations"));
  return Ok{};
}

}  // namespace

Status Forward::Rows::allocate(const HyperParameters& config, std::size_t n) {
  const std::size_t widest = std::max({config.d_model, config.q_rows(), config.d_ff});
  LLM_RETURN_IF_ERROR(allocate_floats(normed, n * config.d_model));
  LLM_RETURN_IF_ERROR(allocate_floats(context, n * config.q_rows()));
  LLM_TRY(input, AlignedBuffer<std::byte>::allocate(n * widest * sizeof(float), "activations"));
  return Ok{};
}

Result<Forward> Forward::create(const HyperParameters& config, const ModelWeights& weights,
                                const Rope& rope, const KernelTable& kernels, Compute compute,
                                int n_threads, std::size_t max_batch, std::size_t context) {
  Forward f(config, weights, rope, kernels, compute);
  f.n_threads_ = n_threads;
  const std::size_t t = max_batch;
  LLM_RETURN_IF_ERROR(f.batch_rows_.allocate(config, t));
  LLM_RETURN_IF_ERROR(allocate_floats(f.x_, t * config.d_model));
  LLM_RETURN_IF_ERROR(allocate_floats(f.output_, t * config.d_model));
  LLM_RETURN_IF_ERROR(allocate_floats(f.q_, t * config.q_rows()));
  LLM_RETURN_IF_ERROR(allocate_floats(f.k_, t * config.kv_rows()));
  LLM_RETURN_IF_ERROR(allocate_floats(f.v_, t * config.kv_rows()));
  LLM_RETURN_IF_ERROR(allocate_floats(f.gate_, t * config.d_ff));
  LLM_RETURN_IF_ERROR(allocate_floats(f.up_, t * config.d_ff));
  LLM_RETURN_IF_ERROR(allocate_floats(f.cos_, t * rope.pairs()));
  LLM_RETURN_IF_ERROR(allocate_floats(f.sin_, t * rope.pairs()));
  const std::size_t chunks = (context + kChunk - 1) / kChunk;
  LLM_RETURN_IF_ERROR(allocate_floats(f.partial_, chunks * config.n_heads * (2 + config.head_dim)));
  const std::size_t heads_per_kv = config.n_heads / config.n_kv_heads;
  for (int i = 0; i < n_threads; ++i) {
    Scratch scratch;
    LLM_RETURN_IF_ERROR(scratch.rows.allocate(config, 1));
    LLM_TRY(scratch.product, Workspace::allocate(matmul_workspace_bytes(t), "workspace"));
    LLM_TRY(scratch.attention,
            Workspace::allocate(attend_workspace_bytes(config.head_dim), "workspace"));
    LLM_RETURN_IF_ERROR(
        allocate_floats(scratch.partial, kAttendTokens * heads_per_kv * (2 + config.head_dim)));
    LLM_TRY(scratch.row,
            Workspace::allocate(row_bytes(weights.token_embd.type(), config.d_model), "workspace"));
    f.scratch_.push_back(std::move(scratch));
  }
  return f;
}

void Forward::run(std::span<const TokenId> tokens, std::size_t first_position, KvCache& cache,
                  std::span<float> logits, ProbeSink* probe) {
  const Pass pass{tokens, first_position, cache, logits, probe};
  if (probe != nullptr) probe->begin_step(tokens, first_position);
  run_parallel(n_threads_, [&](Worker worker) {
    embed(pass, worker);
    for (std::size_t layer = 0; layer < config_.n_layers; ++layer) {
      run_attention(pass, worker, layer);
      run_ffn(pass, worker, layer);
    }
    run_output(pass, worker);
  });
}

void Forward::embed(const Pass& pass, Worker worker) {
  const PackedMatrix& table = weights_.token_embd;
  const auto [begin, end] = worker.share(pass.tokens.size());
  const std::span<std::byte> bytes = scratch_[static_cast<std::size_t>(worker.id)].row.span();
  for (std::size_t t = begin; t < end; ++t) {
    rope_.angles(pass.first_position + t, cos_.span().subspan(t * rope_.pairs(), rope_.pairs()),
                 sin_.span().subspan(t * rope_.pairs(), rope_.pairs()));
    table.extract_row(static_cast<std::size_t>(pass.tokens[t]), bytes);
    reference::dequantize_row(table.type(), bytes,
                              x_.span().subspan(t * config_.d_model, config_.d_model));
  }
  worker.barrier();
  tap(pass, worker, ProbeSink::kGlobal, "embd", x_.data(), config_.d_model);
}

void Forward::run_attention(const Pass& pass, Worker worker, std::size_t layer) {
  const LayerWeights& w = weights_.layers[layer];
  const int id = static_cast<int>(layer);
  const std::size_t n_tokens = pass.tokens.size();

  const Rows& rows = rows_of(worker, n_tokens);
  ActivationMatrix input = norm_rows(worker, w.attn_norm.span(), w.attn_q, 0, n_tokens);
  tap(pass, worker, id, "attn_norm", rows.normed.data(), config_.d_model);
  product(worker, w.attn_q, input, q_.data(), Epilogue::kStore);
  input = in_format_of(worker, w.attn_k, input);
  product(worker, w.attn_k, input, k_.data(), Epilogue::kStore);
  input = in_format_of(worker, w.attn_v, input);
  product(worker, w.attn_v, input, v_.data(), Epilogue::kStore);
  if (pass.probe != nullptr) worker.barrier();
  tap(pass, worker, id, "q", q_.data(), config_.q_rows());
  tap(pass, worker, id, "k", k_.data(), config_.kv_rows());
  tap(pass, worker, id, "v", v_.data(), config_.kv_rows());

  rotate_and_store(pass, worker, layer);
  tap(pass, worker, id, "q_rope", q_.data(), config_.q_rows());
  tap(pass, worker, id, "k_rope", k_.data(), config_.kv_rows());
  attend(pass, worker, layer);
  tap(pass, worker, id, "attn_ctx", rows.context.data(), config_.q_rows());

  input = load_rows(worker, rows.context.data(), w.attn_output, n_tokens);
  add_product(pass, worker, w.attn_output, input, id, "attn_out");
  tap(pass, worker, id, "ffn_inp", x_.data(), config_.d_model);
}

void Forward::run_ffn(const Pass& pass, Worker worker, std::size_t layer) {
  const LayerWeights& w = weights_.layers[layer];
  const int id = static_cast<int>(layer);
  const std::size_t n_tokens = pass.tokens.size();
  const std::size_t d_ff = config_.d_ff;

  ActivationMatrix input = norm_rows(worker, w.ffn_norm.span(), w.ffn_gate, 0, n_tokens);
  tap(pass, worker, id, "ffn_norm", rows_of(worker, n_tokens).normed.data(), config_.d_model);
  product(worker, w.ffn_gate, input, gate_.data(), Epilogue::kStore);
  input = in_format_of(worker, w.ffn_up, input);
  product(worker, w.ffn_up, input, up_.data(), Epilogue::kStore);
  if (pass.probe != nullptr) worker.barrier();
  tap(pass, worker, id, "gate", gate_.data(), d_ff);
  tap(pass, worker, id, "up", up_.data(), d_ff);

  // A worker's columns of gate and up are its own: their matrices have equally many rows.
  const Worker::Range columns = matmul_rows(worker, w.ffn_gate, n_tokens);
  for (std::size_t t = 0; t < n_tokens; ++t) {
    kernels_.silu_mul(gate_.data() + t * d_ff + columns.begin,
                      up_.data() + t * d_ff + columns.begin, columns.end - columns.begin);
  }
  worker.barrier();
  tap(pass, worker, id, "ffn_act", gate_.data(), d_ff);

  input = load_rows(worker, gate_.data(), w.ffn_down, n_tokens);
  add_product(pass, worker, w.ffn_down, input, id, "ffn_out");
  tap(pass, worker, id, "l_out", x_.data(), config_.d_model);
}

void Forward::run_output(const Pass& pass, Worker worker) {
  const std::size_t n_rows = pass.logits.size() / config_.n_vocab;
  if (n_rows == 0) return;
  const std::size_t first = pass.tokens.size() - n_rows;
  const PackedMatrix& w = weights_.output();
  const ActivationMatrix input = norm_rows(worker, weights_.output_norm.span(), w, first, n_rows);
  tap(pass, worker, ProbeSink::kGlobal, "result_norm", rows_of(worker, n_rows).normed.data(),
      config_.d_model, first);
  product(worker, w, input, pass.logits.data(), Epilogue::kStore);
  worker.barrier();
  tap(pass, worker, ProbeSink::kGlobal, "logits", pass.logits.data(), config_.n_vocab, first);
}

Forward::Rows& Forward::rows_of(Worker worker, std::size_t n) {
  return n == 1 ? scratch_[static_cast<std::size_t>(worker.id)].rows : batch_rows_;
}

Worker::Range Forward::share_of_rows(Worker worker, std::size_t n) {
  return n == 1 ? Worker::Range{0, 1} : worker.share(n);
}

void Forward::wait_for_rows(Worker worker, std::size_t n) {
  if (n > 1) worker.barrier();
}

ActivationMatrix Forward::norm_rows(Worker worker, std::span<const float> weight,
                                    const PackedMatrix& w, std::size_t first, std::size_t n) {
  const std::size_t d = config_.d_model;
  Rows& rows = rows_of(worker, n);
  ActivationMatrix input(rows.input.span(), format_for(w), n, d);
  const auto [begin, end] = share_of_rows(worker, n);
  for (std::size_t t = begin; t < end; ++t) {
    const std::span<float> normed = rows.normed.span().subspan(t * d, d);
    kernels_.rms_norm(x_.data() + (first + t) * d, weight.data(), d, config_.norm_eps,
                      normed.data());
    input.store(kernels_, t, normed);
  }
  wait_for_rows(worker, n);
  return input;
}

ActivationMatrix Forward::load_rows(Worker worker, const float* x, const PackedMatrix& w,
                                    std::size_t n) {
  const std::size_t features = w.n_cols();
  ActivationMatrix input(rows_of(worker, n).input.span(), format_for(w), n, features);
  const auto [begin, end] = share_of_rows(worker, n);
  for (std::size_t t = begin; t < end; ++t) {
    input.store(kernels_, t, std::span(x + t * features, features));
  }
  wait_for_rows(worker, n);
  return input;
}

ActivationMatrix Forward::in_format_of(Worker worker, const PackedMatrix& w,
                                       const ActivationMatrix& input) {
  if (input.format() == format_for(w)) return input;
  const std::size_t n = input.n_tokens();
  wait_for_rows(worker, n);  // others may still read the old format
  return load_rows(worker, rows_of(worker, n).normed.data(), w, n);
}

void Forward::add_product(const Pass& pass, Worker worker, const PackedMatrix& w,
                          const ActivationMatrix& input, int layer, std::string_view name) {
  if (pass.probe == nullptr) {
    product(worker, w, input, x_.data(), Epilogue::kAdd);
    worker.barrier();
    return;
  }
  product(worker, w, input, output_.data(), Epilogue::kStore);
  worker.barrier();
  tap(pass, worker, layer, name, output_.data(), config_.d_model);
  const auto [begin, end] = worker.share(pass.tokens.size() * config_.d_model);
  for (std::size_t i = begin; i < end; ++i) x_[i] += output_[i];
  worker.barrier();
}

void Forward::rotate_and_store(const Pass& pass, Worker worker, std::size_t layer) {
  const LayerWeights& w = weights_.layers[layer];
  const std::size_t n_tokens = pass.tokens.size();
  // What a worker computed it also rotates and stores: shares begin and end at even rows, and K and
  // V have equally many.
  const Worker::Range q_own = matmul_rows(worker, w.attn_q, n_tokens);
  const Worker::Range k_own = matmul_rows(worker, w.attn_k, n_tokens);
  for (std::size_t t = 0; t < n_tokens; ++t) {
    const float* cos = cos_.data() + t * rope_.pairs();
    const float* sin = sin_.data() + t * rope_.pairs();
    float* k = k_.data() + t * config_.kv_rows();
    const float* v = v_.data() + t * config_.kv_rows();
    kernels_.rope(q_.data() + t * config_.q_rows(), q_own.begin, q_own.end, config_.head_dim, cos,
                  sin, rope_.pairs());
    kernels_.rope(k, k_own.begin, k_own.end, config_.head_dim, cos, sin, rope_.pairs());
    const std::size_t n_own = k_own.end - k_own.begin;
    pass.cache.store(layer, k_own.begin, pass.first_position + t, {k + k_own.begin, n_own},
                     {v + k_own.begin, n_own});
  }
  worker.barrier();
}

void Forward::attend(const Pass& pass, Worker worker, std::size_t layer) {
  const std::size_t head_dim = config_.head_dim;
  const std::size_t heads_per_kv = config_.n_heads / config_.n_kv_heads;
  const std::size_t partial_size = 2 + head_dim;
  const std::size_t n_tokens = pass.tokens.size();
  const std::size_t n_chunks = (pass.first_position + n_tokens + kChunk - 1) / kChunk;
  const bool decode = n_tokens == 1;
  Scratch& scratch = scratch_[static_cast<std::size_t>(worker.id)];
  float* context = rows_of(worker, n_tokens).context.data();

  // Tasks: of one token, (chunk, KV head), merged afterwards; of more, (block of tokens, KV head).
  const std::size_t n_blocks = decode ? n_chunks : (n_tokens + kAttendTokens - 1) / kAttendTokens;
  const auto workers = static_cast<std::size_t>(worker.count);
  for (auto task = static_cast<std::size_t>(worker.id); task < n_blocks * config_.n_kv_heads;
       task += workers) {
    const std::size_t kv_head = task % config_.n_kv_heads;
    const std::size_t block = task / config_.n_kv_heads;
    const std::size_t first_head = kv_head * heads_per_kv;
    const std::size_t first = decode ? 0 : block * kAttendTokens;
    const std::size_t count = std::min(kAttendTokens, n_tokens - first);
    const std::size_t last_position = pass.first_position + first + count - 1;
    float* partial = decode
                         ? partial_.data() + (block * config_.n_heads + first_head) * partial_size
                         : scratch.partial.data();
    kernels_.attend({.q = q_.data() + first * config_.q_rows() + first_head * head_dim,
                     .q_stride = config_.q_rows(),
                     .keys = pass.cache.keys(layer, kv_head),
                     .values = pass.cache.values(layer, kv_head),
                     .half = pass.cache.type() == KvType::kF16,
                     .head_dim = head_dim,
                     .n_heads = heads_per_kv,
                     .n_tokens = count,
                     .first_position = pass.first_position + first,
                     .chunk_begin = decode ? block : 0,
                     .chunk_end = decode ? block + 1 : last_position / kChunk + 1,
                     .partial = partial,
                     .workspace = scratch.attention.data()});
    if (decode) continue;
    for (std::size_t row = 0; row < count * heads_per_kv; ++row) {
      kernels_.finish(partial + row * partial_size, head_dim,
                      context + (first + row / heads_per_kv) * config_.q_rows() +
                          (first_head + row % heads_per_kv) * head_dim);
    }
  }
  worker.barrier();
  if (!decode) return;
  for (std::size_t head = 0; head < config_.n_heads; ++head) {
    const float* first = partial_.data() + head * partial_size;
    float* sum = scratch.partial.data();
    std::copy_n(first, partial_size, sum);
    for (std::size_t chunk = 1; chunk < n_chunks; ++chunk) {
      kernels_.merge(sum, first + chunk * config_.n_heads * partial_size, head_dim);
    }
    kernels_.finish(sum, head_dim, context + head * head_dim);
  }
}

void Forward::product(Worker worker, const PackedMatrix& w, const ActivationMatrix& input, float* y,
                      Epilogue epilogue) {
  matmul(kernels_, worker, w, input, y, w.n_rows(), epilogue,
         scratch_[static_cast<std::size_t>(worker.id)].product);
}

ActivationFormat Forward::format_for(const PackedMatrix& w) const {
  return compute_ == Compute::kInt8 ? activation_format(w.type()) : ActivationFormat::kF32;
}

void Forward::tap(const Pass& pass, Worker worker, int layer, std::string_view name,
                  const float* values, std::size_t features, std::size_t first_token) const {
  if (pass.probe == nullptr) return;
  if (worker.id == 0) {
    pass.probe->tap(layer, name, {values, (pass.tokens.size() - first_token) * features}, features,
                    first_token);
  }
  worker.barrier();
}

}  // namespace llm
