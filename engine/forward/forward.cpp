#include "engine/forward/forward.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "quant/formats/dequantize.h"

namespace llm {
namespace {

Status allocate_floats(AlignedBuffer<float>& buffer, std::uint64_t count) {
  LLM_TRY(buffer, AlignedBuffer<float>::allocate(count, "activations"));
  return Ok{};
}

}  // namespace

Status Forward::Inputs::allocate(const HyperParameters& config, std::size_t n) {
  const std::size_t widest = std::max({config.d_model, config.q_rows(), config.d_ff});
  LLM_RETURN_IF_ERROR(allocate_floats(normed, n * config.d_model));
  LLM_RETURN_IF_ERROR(allocate_floats(context, n * config.q_rows()));
  LLM_TRY(input, AlignedBuffer<std::byte>::allocate(n * widest * sizeof(float), "activations"));
  return Ok{};
}

Forward::Forward(const Model& model)
    : config_(model.config()),
      weights_(model.weights()),
      rope_(model.rope()),
      kernels_(*kernel_table(model.isa())),
      compute_(model.compute()),
      n_threads_(model.threads()) {}

Result<Forward> Forward::create(const Model& model, std::size_t max_batch, std::size_t context) {
  Forward f(model);
  const HyperParameters& config = model.config();
  const std::size_t t = max_batch;
  LLM_RETURN_IF_ERROR(f.batch_inputs_.allocate(config, t));
  LLM_RETURN_IF_ERROR(allocate_floats(f.x_, t * config.d_model));
  LLM_RETURN_IF_ERROR(allocate_floats(f.output_, t * config.d_model));
  LLM_RETURN_IF_ERROR(allocate_floats(f.q_, t * config.q_rows()));
  LLM_RETURN_IF_ERROR(allocate_floats(f.k_, t * config.kv_rows()));
  LLM_RETURN_IF_ERROR(allocate_floats(f.v_, t * config.kv_rows()));
  LLM_RETURN_IF_ERROR(allocate_floats(f.gate_, t * config.d_ff));
  LLM_RETURN_IF_ERROR(allocate_floats(f.up_, t * config.d_ff));
  LLM_RETURN_IF_ERROR(allocate_floats(f.cos_, t * f.rope_.pairs()));
  LLM_RETURN_IF_ERROR(allocate_floats(f.sin_, t * f.rope_.pairs()));
  const std::size_t chunks = KvPool::pages_for(context);
  LLM_RETURN_IF_ERROR(allocate_floats(f.partial_, chunks * config.n_heads * (2 + config.head_dim)));
  const std::size_t heads_per_kv = config.n_heads / config.n_kv_heads;
  for (int i = 0; i < f.n_threads_; ++i) {
    Scratch scratch;
    LLM_RETURN_IF_ERROR(scratch.inputs.allocate(config, 1));
    LLM_TRY(scratch.product, Workspace::allocate(matmul_workspace_bytes(t), "workspace"));
    LLM_TRY(scratch.attention,
            Workspace::allocate(attend_workspace_bytes(config.head_dim), "workspace"));
    LLM_RETURN_IF_ERROR(
        allocate_floats(scratch.partial, kAttendRows * heads_per_kv * (2 + config.head_dim)));
    LLM_TRY(scratch.row, Workspace::allocate(
                             row_bytes(f.weights_.token_embd.type(), config.d_model), "workspace"));
    LLM_TRY(scratch.half,
            AlignedBuffer<std::uint16_t>::allocate(2 * config.kv_rows(), "workspace"));
    f.scratch_.push_back(std::move(scratch));
  }
  f.all_rows_.resize(t);
  std::iota(f.all_rows_.begin(), f.all_rows_.end(), std::size_t{0});
  return f;
}

void Forward::run(std::span<const PassSegment> segments, std::span<float> logits,
                  ProbeSink* probe) {
  const Pass pass = plan(segments, logits, probe);
  run_parallel(n_threads_, [&](Worker worker) {
    embed(pass, worker);
    for (std::size_t layer = 0; layer < config_.n_layers; ++layer) {
      run_attention(pass, worker, layer);
      run_ffn(pass, worker, layer);
    }
    run_output(pass, worker);
  });
}

Forward::Pass Forward::plan(std::span<const PassSegment> segments, std::span<float> logits,
                            ProbeSink* probe) {
  LLM_CHECK(probe == nullptr || segments.size() == 1);
  rows_.clear();
  blocks_.clear();
  logit_rows_.clear();
  for (const PassSegment& segment : segments) {
    if (probe != nullptr) probe->begin_step(segment.tokens, segment.first_position);
    const std::size_t n = segment.tokens.size();
    for (std::size_t t = 0; t < n; ++t) {
      if (t % kAttendRows == 0)
        blocks_.push_back({&segment, rows_.size(), std::min(kAttendRows, n - t)});
      if (t + segment.n_logits >= n) logit_rows_.push_back(rows_.size());
      rows_.push_back({&segment, segment.tokens[t], segment.first_position + t});
    }
  }
  LLM_CHECK(rows_.size() <= all_rows_.size());
  LLM_CHECK(logits.size() == logit_rows_.size() * config_.n_vocab);
  return {rows_, blocks_, logit_rows_, logits, probe};
}

void Forward::embed(const Pass& pass, Worker worker) {
  const PackedMatrix& table = weights_.token_embd;
  const auto [begin, end] = worker.share(pass.rows.size());
  const std::span<std::byte> bytes = scratch_[static_cast<std::size_t>(worker.id)].row.span();
  for (std::size_t t = begin; t < end; ++t) {
    rope_.angles(pass.rows[t].position, cos_.span().subspan(t * rope_.pairs(), rope_.pairs()),
                 sin_.span().subspan(t * rope_.pairs(), rope_.pairs()));
    table.extract_row(static_cast<std::size_t>(pass.rows[t].token), bytes);
    contract::dequantize_row(table.type(), bytes,
                             x_.span().subspan(t * config_.d_model, config_.d_model));
  }
  worker.barrier();
  tap(pass, worker, ProbeSink::kGlobal, "embd", x_.data(), config_.d_model);
}

void Forward::run_attention(const Pass& pass, Worker worker, std::size_t layer) {
  const LayerWeights& w = weights_.layers[layer];
  const int id = static_cast<int>(layer);
  const std::size_t n_rows = pass.rows.size();

  Inputs& inputs = inputs_of(worker, n_rows);
  ActivationMatrix input = norm_rows(worker, w.attn_norm.span(), w.attn_q, all_rows(pass));
  tap(pass, worker, id, "attn_norm", inputs.normed.data(), config_.d_model);
  product(worker, w.attn_q, input, q_.data(), Epilogue::kStore);
  add_bias(worker, w.attn_q, w.attn_q_bias.span(), n_rows, q_.data());
  input = in_format_of(worker, w.attn_k, input);
  product(worker, w.attn_k, input, k_.data(), Epilogue::kStore);
  add_bias(worker, w.attn_k, w.attn_k_bias.span(), n_rows, k_.data());
  input = in_format_of(worker, w.attn_v, input);
  product(worker, w.attn_v, input, v_.data(), Epilogue::kStore);
  add_bias(worker, w.attn_v, w.attn_v_bias.span(), n_rows, v_.data());
  if (pass.probe != nullptr) worker.barrier();
  tap(pass, worker, id, "q", q_.data(), config_.q_rows());
  tap(pass, worker, id, "k", k_.data(), config_.kv_rows());
  tap(pass, worker, id, "v", v_.data(), config_.kv_rows());

  rotate_and_store(pass, worker, layer);
  tap(pass, worker, id, "q_rope", q_.data(), config_.q_rows());
  tap(pass, worker, id, "k_rope", k_.data(), config_.kv_rows());
  attend(pass, worker, layer);
  tap(pass, worker, id, "attn_ctx", inputs.context.data(), config_.q_rows());

  input = load_rows(worker, inputs.context.data(), w.attn_output, n_rows);
  add_product(pass, worker, w.attn_output, input, id, "attn_out");
  tap(pass, worker, id, "ffn_inp", x_.data(), config_.d_model);
}

void Forward::run_ffn(const Pass& pass, Worker worker, std::size_t layer) {
  const LayerWeights& w = weights_.layers[layer];
  const int id = static_cast<int>(layer);
  const std::size_t n_rows = pass.rows.size();
  const std::size_t d_ff = config_.d_ff;

  ActivationMatrix input = norm_rows(worker, w.ffn_norm.span(), w.ffn_gate, all_rows(pass));
  tap(pass, worker, id, "ffn_norm", inputs_of(worker, n_rows).normed.data(), config_.d_model);
  product(worker, w.ffn_gate, input, gate_.data(), Epilogue::kStore);
  input = in_format_of(worker, w.ffn_up, input);
  product(worker, w.ffn_up, input, up_.data(), Epilogue::kStore);
  if (pass.probe != nullptr) worker.barrier();
  tap(pass, worker, id, "gate", gate_.data(), d_ff);
  tap(pass, worker, id, "up", up_.data(), d_ff);

  // A worker's columns of gate and up are its own: their matrices have equally many rows.
  const Worker::Range columns = matmul_rows(worker, w.ffn_gate, n_rows);
  for (std::size_t t = 0; t < n_rows; ++t) {
    kernels_.silu_mul(gate_.data() + t * d_ff + columns.begin,
                      up_.data() + t * d_ff + columns.begin, columns.end - columns.begin);
  }
  worker.barrier();
  tap(pass, worker, id, "ffn_act", gate_.data(), d_ff);

  input = load_rows(worker, gate_.data(), w.ffn_down, n_rows);
  add_product(pass, worker, w.ffn_down, input, id, "ffn_out");
  tap(pass, worker, id, "l_out", x_.data(), config_.d_model);
}

void Forward::run_output(const Pass& pass, Worker worker) {
  const std::size_t n = pass.logit_rows.size();
  if (n == 0) return;
  const PackedMatrix& w = weights_.output();
  const ActivationMatrix input = norm_rows(worker, weights_.output_norm.span(), w, pass.logit_rows);
  tap(pass, worker, ProbeSink::kGlobal, "result_norm", inputs_of(worker, n).normed.data(),
      config_.d_model, pass.logit_rows[0]);
  product(worker, w, input, pass.logits.data(), Epilogue::kStore);
  worker.barrier();
  tap(pass, worker, ProbeSink::kGlobal, "logits", pass.logits.data(), config_.n_vocab,
      pass.logit_rows[0]);
}

std::span<const std::size_t> Forward::all_rows(const Pass& pass) const {
  return std::span(all_rows_).first(pass.rows.size());
}

Forward::Inputs& Forward::inputs_of(Worker worker, std::size_t n) {
  return n == 1 ? scratch_[static_cast<std::size_t>(worker.id)].inputs : batch_inputs_;
}

Worker::Range Forward::share_of_rows(Worker worker, std::size_t n) {
  return n == 1 ? Worker::Range{0, 1} : worker.share(n);
}

void Forward::wait_for_rows(Worker worker, std::size_t n) {
  if (n > 1) worker.barrier();
}

ActivationMatrix Forward::norm_rows(Worker worker, std::span<const float> weight,
                                    const PackedMatrix& w, std::span<const std::size_t> rows) {
  const std::size_t d = config_.d_model;
  const std::size_t n = rows.size();
  Inputs& inputs = inputs_of(worker, n);
  ActivationMatrix input(inputs.input.span(), format_for(w), n, d);
  const auto [begin, end] = share_of_rows(worker, n);
  for (std::size_t i = begin; i < end; ++i) {
    const std::span<float> normed = inputs.normed.span().subspan(i * d, d);
    kernels_.rms_norm(x_.data() + rows[i] * d, weight.data(), d, config_.norm_eps, normed.data());
    input.store(kernels_, i, normed);
  }
  wait_for_rows(worker, n);
  return input;
}

ActivationMatrix Forward::load_rows(Worker worker, const float* x, const PackedMatrix& w,
                                    std::size_t n) {
  const std::size_t features = w.n_cols();
  ActivationMatrix input(inputs_of(worker, n).input.span(), format_for(w), n, features);
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
  return load_rows(worker, inputs_of(worker, n).normed.data(), w, n);
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
  const auto [begin, end] = worker.share(pass.rows.size() * config_.d_model);
  for (std::size_t i = begin; i < end; ++i) x_[i] += output_[i];
  worker.barrier();
}

void Forward::product(Worker worker, const PackedMatrix& w, const ActivationMatrix& input, float* y,
                      Epilogue epilogue) {
  matmul(kernels_, worker, w, input, y, w.n_rows(), epilogue,
         scratch_[static_cast<std::size_t>(worker.id)].product);
}

void Forward::add_bias(Worker worker, const PackedMatrix& w, std::span<const float> bias,
                       std::size_t n, float* y) {
  if (bias.empty()) return;
  const auto [begin, end] = matmul_rows(worker, w, n);
  for (std::size_t t = 0; t < n; ++t)
    for (std::size_t r = begin; r < end; ++r) y[t * w.n_rows() + r] += bias[r];
}

ActivationFormat Forward::format_for(const PackedMatrix& w) const {
  return compute_ == Compute::kInt8 ? activation_format(w.type()) : ActivationFormat::kF32;
}

void Forward::tap(const Pass& pass, Worker worker, int layer, std::string_view name, float* values,
                  std::size_t features, std::size_t first_row) const {
  if (pass.probe == nullptr) return;
  if (worker.id == 0) {
    pass.probe->tap(layer, name, {values, (pass.rows.size() - first_row) * features}, features,
                    first_row);
  }
  worker.barrier();
}

}  // namespace llm
