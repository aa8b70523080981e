#include "engine/forward/forward.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "engine/model/weight_store.h"
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
  const auto bytes = [&](ActivationFormat format) {
    const std::size_t block = activation_block_size(format);
    return ActivationMatrix::bytes(format, n, (widest + block - 1) / block * block);
  };
  LLM_TRY(q8_k, AlignedBuffer<std::byte>::allocate(bytes(ActivationFormat::kQ8_K), "activations"));
  LLM_TRY(q8_32,
          AlignedBuffer<std::byte>::allocate(bytes(ActivationFormat::kQ8_32), "activations"));
  return Ok{};
}

Forward::Forward(const Model& model)
    : config_(model.config()),
      weights_(model.weights()),
      rope_(model.rope()),
      kernels_(*kernel_table(model.isa())),
      compute_(model.compute()),
      team_size_(model.threads()) {}

Result<Forward> Forward::create(const Model& model, std::size_t max_batch, std::size_t context,
                                KvType kv) {
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
  for (int i = 0; i < model.threads(); ++i) {
    Scratch scratch;
    LLM_RETURN_IF_ERROR(scratch.inputs.allocate(config, 1));
    LLM_TRY(scratch.product, Workspace::allocate(matmul_workspace_bytes(t), "workspace"));
    LLM_TRY(scratch.attention,
            Workspace::allocate(
                attend_workspace_bytes({kv, config.head_dim}, kAttendRows * heads_per_kv),
                "workspace"));
    LLM_RETURN_IF_ERROR(
        allocate_floats(scratch.partial, kAttendRows * heads_per_kv * (2 + config.head_dim)));
    LLM_TRY(scratch.row, Workspace::allocate(
                             row_bytes(f.weights_.token_embd.type(), config.d_model), "workspace"));
    f.scratch_.push_back(std::move(scratch));
  }
  f.all_rows_.resize(t);
  std::iota(f.all_rows_.begin(), f.all_rows_.end(), std::size_t{0});
  return f;
}

void Forward::run(std::span<const PassSegment> segments, std::span<float> logits,
                  ProbeSink* probe) {
  const auto started = OpClock::Time::clock::now();
  const Pass pass = plan(segments, logits, probe);
  task_bytes_ = weights_.store->in_memory() ? RowTasks::kTaskBytes : RowTasks::kLentTaskBytes;
  std::size_t n_workers = 1;
  run_parallel(team_size_.workers(rows_.size()), [&](Worker worker) {
    if (worker.id == 0) n_workers = static_cast<std::size_t>(worker.count);
    begin(worker, started);
    embed(pass, worker);
    for (std::size_t layer = 0; layer < config_.n_layers; ++layer) {
      run_attention(pass, worker, layer);
      run_ffn(pass, worker, layer);
    }
    run_output(pass, worker);
    end(worker, started);
  });
  const auto now = OpClock::Time::clock::now();
  const auto team = std::span(scratch_).first(n_workers);
  team_size_.passed(rows_.size(), now - started, std::ranges::any_of(team, &Scratch::stopped));
  if (profile_ != nullptr) add_to_profile(started, now, n_workers);
}

void Forward::begin(Worker worker, OpClock::Time started) {
  clock(worker).start(profile_ != nullptr, started);
  clock(worker).lap(PassOp::kRegion);
  scratch_[static_cast<std::size_t>(worker.id)].own_time = own_time();
}

void Forward::end(Worker worker, OpClock::Time started) {
  Scratch& scratch = scratch_[static_cast<std::size_t>(worker.id)];
  const std::chrono::nanoseconds wall = OpClock::Time::clock::now() - started;
  // Less than a fifth of the time costs less than a worker fewer.
  scratch.stopped = wall - (own_time() - scratch.own_time) > wall / 5;
}

void Forward::add_to_profile(OpClock::Time started, OpClock::Time now, std::size_t n_workers) {
  OpProfile& profile = profile_of(rows_.size());
  for (Scratch& scratch : std::span(scratch_).first(n_workers)) {
    scratch.clock.lap_at(now, PassOp::kRegion);
    for (std::size_t op = 0; op < kPassOps; ++op) profile.ops[op].add(scratch.clock.ops()[op]);
  }
  ++profile.passes;
  profile.wall += now - started;
  profile.worker_time += (now - started) * static_cast<std::int64_t>(n_workers);
}

void Forward::profile_packing(std::chrono::nanoseconds time, std::size_t n_rows) {
  if (profile_ == nullptr) return;
  OpProfile& profile = profile_of(n_rows);
  const std::chrono::nanoseconds worker_time = time * static_cast<std::int64_t>(scratch_.size());
  profile.ops[static_cast<std::size_t>(PassOp::kPack)].add({.calls = 1, .time = worker_time});
  profile.wall += time;
  profile.worker_time += worker_time;
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
  const std::span<std::byte> bytes = scratch_[static_cast<std::size_t>(worker.id)].row.span();
  run_tasks(worker, pass.rows.size(), [&](std::size_t t) {
    rope_.angles(pass.rows[t].position, cos_.span().subspan(t * rope_.pairs(), rope_.pairs()),
                 sin_.span().subspan(t * rope_.pairs(), rope_.pairs()));
    table.extract_row(static_cast<std::size_t>(pass.rows[t].token), bytes);
    contract::dequantize_row(table.type(), bytes,
                             x_.span().subspan(t * config_.d_model, config_.d_model));
    clock(worker).lap(PassOp::kEmbed);
  });
  tap(pass, worker, ProbeSink::kGlobal, "embd", x_.data(), config_.d_model);
}

void Forward::run_attention(const Pass& pass, Worker worker, std::size_t layer) {
  const LayerWeights& w = weights_.layers[layer];
  const int id = static_cast<int>(layer);

  const InputRows normed =
      norm_rows(worker, w.attn_norm.span(), all_rows(pass), {&w.attn_q, &w.attn_k, &w.attn_v});
  tap(pass, worker, id, "attn_norm", normed.f32, config_.d_model);
  project_heads(pass, worker, layer, normed);
  attend(pass, worker, layer);
  float* const context = inputs_of(worker, pass.rows.size()).context.data();
  tap(pass, worker, id, "attn_ctx", context, config_.q_rows());
  const InputRows input = load_rows(worker, PassOp::kMerge, context, pass.rows.size(),
                                    config_.q_rows(), {&w.attn_output});
  add_product(pass, worker, PassOp::kAttnOutput, w.attn_output, input, id, "attn_out");
  tap(pass, worker, id, "ffn_inp", x_.data(), config_.d_model);
}

void Forward::run_ffn(const Pass& pass, Worker worker, std::size_t layer) {
  const LayerWeights& w = weights_.layers[layer];
  const int id = static_cast<int>(layer);
  const std::size_t n_rows = pass.rows.size();
  const std::size_t d_ff = config_.d_ff;

  const InputRows normed =
      norm_rows(worker, w.ffn_norm.span(), all_rows(pass), {&w.ffn_gate, &w.ffn_up});
  tap(pass, worker, id, "ffn_norm", normed.f32, config_.d_model);
  const RowTasks tasks = tasks_of(w.ffn_gate, n_rows, worker);
  const auto activate = [&](Worker::Range columns) {
    for (std::size_t t = 0; t < n_rows; ++t) {
      kernels_.silu_mul(gate_.data() + t * d_ff + columns.begin,
                        up_.data() + t * d_ff + columns.begin, columns.end - columns.begin);
    }
    clock(worker).lap(PassOp::kSilu);
  };
  run_tasks(worker, tasks.size(), [&](std::size_t i) {
    product(worker, PassOp::kGateUp, w.ffn_gate, tasks[i], normed, gate_.data(), Epilogue::kStore);
    product(worker, PassOp::kGateUp, w.ffn_up, tasks[i], normed, up_.data(), Epilogue::kStore);
    if (pass.probe == nullptr) activate(tasks[i]);
  });
  if (pass.probe != nullptr) {
    tap(pass, worker, id, "gate", gate_.data(), d_ff);
    tap(pass, worker, id, "up", up_.data(), d_ff);
    run_tasks(worker, tasks.size(), [&](std::size_t i) { activate(tasks[i]); });
  }
  tap(pass, worker, id, "ffn_act", gate_.data(), d_ff);

  const InputRows active =
      load_rows(worker, PassOp::kNorm, gate_.data(), n_rows, d_ff, {&w.ffn_down});
  add_product(pass, worker, PassOp::kFfnDown, w.ffn_down, active, id, "ffn_out");
  tap(pass, worker, id, "l_out", x_.data(), config_.d_model);
}

void Forward::run_output(const Pass& pass, Worker worker) {
  const std::size_t n = pass.logit_rows.size();
  if (n == 0) return;
  const PackedMatrix& w = weights_.output();
  const InputRows normed = norm_rows(worker, weights_.output_norm.span(), pass.logit_rows, {&w});
  tap(pass, worker, ProbeSink::kGlobal, "result_norm", normed.f32, config_.d_model,
      pass.logit_rows[0]);
  const RowTasks tasks = tasks_of(w, n, worker);
  run_tasks(worker, tasks.size(), [&](std::size_t i) {
    product(worker, PassOp::kOutput, w, tasks[i], normed, pass.logits.data(), Epilogue::kStore);
  });
  tap(pass, worker, ProbeSink::kGlobal, "logits", pass.logits.data(), config_.n_vocab,
      pass.logit_rows[0]);
}

std::span<const std::size_t> Forward::all_rows(const Pass& pass) const {
  return std::span(all_rows_).first(pass.rows.size());
}

Forward::Inputs& Forward::inputs_of(Worker worker, std::size_t n) {
  return n == 1 ? scratch_[static_cast<std::size_t>(worker.id)].inputs : batch_inputs_;
}

ActivationMatrix Forward::InputRows::as(ActivationFormat format) const {
  switch (format) {
    case ActivationFormat::kQ8_K:
      return {memory->q8_k.span(), format, n, features};
    case ActivationFormat::kQ8_32:
      return {memory->q8_32.span(), format, n, features};
    case ActivationFormat::kF32:
      break;
  }
  return {std::as_writable_bytes(std::span(f32, n * features)), format, n, features};
}

void Forward::wait(Worker worker) {
  worker.barrier();
  clock(worker).lap(PassOp::kWait);
}

template <typename MakeRow>
void Forward::prepare_rows(Worker worker, PassOp op, const InputRows& input, Readers readers,
                           MakeRow make_row) {
  const auto prepare = [&](std::size_t i) {
    make_row(i);
    const std::span<const float> row(input.f32 + i * input.features, input.features);
    for (const ActivationFormat format : {ActivationFormat::kQ8_K, ActivationFormat::kQ8_32}) {
      const auto reads = [&](const PackedMatrix* w) { return format_for(*w) == format; };
      if (std::ranges::any_of(readers, reads)) input.as(format).store(kernels_, i, row);
    }
    clock(worker).lap(op);
  };
  if (input.n == 1) return prepare(0);
  run_tasks(worker, input.n, prepare);
}

Forward::InputRows Forward::norm_rows(Worker worker, std::span<const float> weight,
                                      std::span<const std::size_t> rows, Readers readers) {
  const std::size_t d = config_.d_model;
  Inputs& inputs = inputs_of(worker, rows.size());
  const InputRows input{&inputs, inputs.normed.data(), rows.size(), d};
  prepare_rows(worker, PassOp::kNorm, input, readers, [&](std::size_t i) {
    kernels_.rms_norm(x_.data() + rows[i] * d, weight.data(), d, config_.norm_eps,
                      input.f32 + i * d);
  });
  return input;
}

Forward::InputRows Forward::load_rows(Worker worker, PassOp op, float* x, std::size_t n,
                                      std::size_t features, Readers readers) {
  const InputRows input{&inputs_of(worker, n), x, n, features};
  prepare_rows(worker, op, input, readers, [](std::size_t) {});
  return input;
}

void Forward::add_product(const Pass& pass, Worker worker, PassOp op, const PackedMatrix& w,
                          const InputRows& input, int layer, std::string_view name) {
  const bool probed = pass.probe != nullptr;
  float* const y = probed ? output_.data() : x_.data();
  const RowTasks tasks = tasks_of(w, input.n, worker);
  run_tasks(worker, tasks.size(), [&](std::size_t i) {
    product(worker, op, w, tasks[i], input, y, probed ? Epilogue::kStore : Epilogue::kAdd);
  });
  if (!probed) return;
  tap(pass, worker, layer, name, output_.data(), config_.d_model);
  const auto [begin, end] = worker.share(pass.rows.size() * config_.d_model);
  for (std::size_t i = begin; i < end; ++i) x_[i] += output_[i];
  wait(worker);
}

RowTasks Forward::tasks_of(const PackedMatrix& w, std::size_t n, Worker worker,
                           std::size_t unit) const {
  return {w, n, worker.count, unit, task_bytes_};
}

void Forward::product(Worker worker, PassOp op, const PackedMatrix& w, TaskRows rows,
                      const InputRows& input, float* y, Epilogue epilogue) {
  matmul(kernels_, w, rows, input.as(format_for(w)), y, w.n_rows(), epilogue,
         scratch_[static_cast<std::size_t>(worker.id)].product);
  const auto n_rows = static_cast<double>(rows.end - rows.begin);
  clock(worker).lap(op, n_rows * static_cast<double>(row_bytes(w.type(), w.n_cols())),
                    n_rows * static_cast<double>(w.n_cols() * input.n));
}

void Forward::add_bias(const PackedMatrix& w, std::span<const float> bias, Worker::Range rows,
                       std::size_t n, float* y) {
  if (bias.empty()) return;
  for (std::size_t t = 0; t < n; ++t)
    for (std::size_t r = rows.begin; r < rows.end; ++r) y[t * w.n_rows() + r] += bias[r];
}

ActivationFormat Forward::format_for(const PackedMatrix& w) const {
  return compute_ == Compute::kInt8 ? activation_format(w.type()) : ActivationFormat::kF32;
}

void Forward::tap(const Pass& pass, Worker worker, int layer, std::string_view name, float* values,
                  std::size_t features, std::size_t first_row) {
  if (pass.probe == nullptr) return;
  if (worker.id == 0) {
    pass.probe->tap(layer, name, {values, (pass.rows.size() - first_row) * features}, features,
                    first_row);
  }
  wait(worker);
}

}  // namespace llm
