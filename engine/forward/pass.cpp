#include "engine/forward/pass.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "engine/model/tensor_roles.h"
#include "engine/model/weight_store.h"

namespace llm {

Result<AlignedBuffer<float>> allocate_activations(std::size_t count) {
  return AlignedBuffer<float>::allocate(count, "activations");
}

Result<InputMemory> InputMemory::allocate(const HyperParameters& config, std::size_t n,
                                          std::size_t width, std::size_t low_rank) {
  std::size_t widest = 0;
  for (const TensorRole& role : kTensorRoles)
    for (int i = 0; role.is_matrix() && i < static_cast<int>(config.n_layers); ++i)
      widest = std::max(widest, role.cols.of(config, i));
  const auto bytes = [&](ActivationFormat format) {
    const std::size_t block = activation_block_size(format);
    return ActivationMatrix::bytes(format, n, (widest + block - 1) / block * block);
  };
  InputMemory memory;
  LLM_TRY(memory.normed, allocate_activations(n * std::max(width, config.d_model)));
  LLM_TRY(memory.q8_k,
          AlignedBuffer<std::byte>::allocate(bytes(ActivationFormat::kQ8_K), "activations"));
  LLM_TRY(memory.q8_32,
          AlignedBuffer<std::byte>::allocate(bytes(ActivationFormat::kQ8_32), "activations"));
  LLM_TRY(memory.low_rank, allocate_activations(n * low_rank));
  return memory;
}

ActivationMatrix InputRows::as(ActivationFormat format) const {
  const std::size_t before = ActivationMatrix::bytes(format, first, features);
  switch (format) {
    case ActivationFormat::kQ8_K:
      return {memory->q8_k.span().subspan(before), format, n, features};
    case ActivationFormat::kQ8_32:
      return {memory->q8_32.span().subspan(before), format, n, features};
    case ActivationFormat::kF32:
      break;
  }
  return {std::as_writable_bytes(std::span(f32, n * features)), format, n, features};
}

Pass::Pass(const Model& model)
    : config_(model.config()),
      weights_(model.weights()),
      adapters_(model.adapters()),
      kernels_(*kernel_table(model.isa())),
      compute_(model.compute()),
      team_size_(model.threads()) {}

Result<Pass> Pass::create(const Model& model, const PassSizes& sizes) {
  Pass pass(model);
  const HyperParameters& config = model.config();
  LLM_TRY(pass.x_, allocate_activations(sizes.max_batch * config.d_model));
  LLM_TRY(pass.output_, allocate_activations(sizes.max_batch * config.d_model));
  std::size_t low_rank = 0;
  for (const auto& adapter : model.adapters()) low_rank += adapter->width();
  LLM_TRY(pass.batch_inputs_, InputMemory::allocate(config, sizes.max_batch, 0, low_rank));
  for (int i = 0; i < model.threads(); ++i) {
    Scratch scratch;
    LLM_TRY(scratch.inputs, InputMemory::allocate(config, 1, 0, low_rank));
    LLM_TRY(scratch.product,
            Workspace::allocate(matmul_workspace_bytes(sizes.max_batch), "workspace"));
    pass.scratch_.push_back(std::move(scratch));
  }
  pass.all_rows_.resize(sizes.max_batch);
  std::iota(pass.all_rows_.begin(), pass.all_rows_.end(), std::size_t{0});
  return pass;
}

void Pass::plan(std::span<const PassSegment> segments, std::span<float> rows, ProbeSink* probe) {
  LLM_CHECK(probe == nullptr || segments.size() == 1);
  rows_.clear();
  wanted_rows_.clear();
  uses_adapters_ = false;
  std::vector<std::size_t> normed_rows;
  for (const PassSegment& segment : segments) {
    uses_adapters_ |= std::ranges::any_of(segment.adapters, [](float scale) { return scale != 0; });
    if (probe != nullptr) probe->begin_step(segment.tokens, segment.first_position);
    const std::size_t n = segment.tokens.size();
    for (std::size_t t = 0; t < n; ++t) {
      if (t + segment.n_logits >= n && !segment.normed) wanted_rows_.push_back(rows_.size());
      if (segment.wants_normed(t)) normed_rows.push_back(rows_.size());
      rows_.push_back({&segment, segment.tokens[t], segment.first_position + t});
    }
  }
  LLM_CHECK(rows_.size() <= all_rows_.size());
  n_logit_rows_ = wanted_rows_.size();
  wanted_rows_.insert(wanted_rows_.end(), normed_rows.begin(), normed_rows.end());
  LLM_CHECK(rows.size() ==
            n_logit_rows_ * config_.n_vocab + normed_rows.size() * config_.d_normed());
  wanted_ = rows;
  probe_ = probe;
}

void Pass::run(const std::function<void(PassWorker&)>& body) {
  const auto started = OpClock::Time::clock::now();
  std::size_t n_workers = 1;
  run_parallel(team_size_.workers(rows_.size()), [&](Worker worker) {
    if (worker.id == 0) n_workers = static_cast<std::size_t>(worker.count);
    PassWorker at(*this, worker);
    at.own_.clock.start(profile_ != nullptr, started);
    at.lap(PassOp::kRegion);
    const std::chrono::nanoseconds own_before = own_time();
    body(at);
    const std::chrono::nanoseconds wall = OpClock::Time::clock::now() - started;
    // Less than a fifth of the time costs less than a worker fewer.
    at.own_.stopped = wall - (own_time() - own_before) > wall / 5;
  });
  const auto now = OpClock::Time::clock::now();
  const auto team = std::span(scratch_).first(n_workers);
  team_size_.passed(rows_.size(), now - started, std::ranges::any_of(team, &Scratch::stopped));
  if (profile_ != nullptr) add_to_profile(started, now, n_workers);
}

void Pass::add_to_profile(OpClock::Time started, OpClock::Time now, std::size_t n_workers) {
  OpProfile& profile = profile_of(rows_.size());
  for (Scratch& scratch : std::span(scratch_).first(n_workers)) {
    scratch.clock.lap_at(now, PassOp::kRegion);
    for (std::size_t op = 0; op < kPassOps; ++op) profile.ops[op].add(scratch.clock.ops()[op]);
  }
  ++profile.passes;
  profile.wall += now - started;
  profile.worker_time += (now - started) * static_cast<std::int64_t>(n_workers);
}

void Pass::profile_packing(std::chrono::nanoseconds time, std::size_t n_rows) {
  if (profile_ == nullptr) return;
  OpProfile& profile = profile_of(n_rows);
  const std::chrono::nanoseconds worker_time = time * static_cast<std::int64_t>(scratch_.size());
  profile.ops[static_cast<std::size_t>(PassOp::kPack)].add({.calls = 1, .time = worker_time});
  profile.wall += time;
  profile.worker_time += worker_time;
}

bool PassWorker::is_read(ActivationFormat format, Readers readers) const {
  return std::ranges::any_of(readers,
                             [&](const PackedMatrix* w) { return format_for(*w) == format; });
}

void PassWorker::store_row(const InputRows& input, std::size_t i, Readers readers) {
  const std::span<const float> row(input.f32 + i * input.features, input.features);
  for (const ActivationFormat format : {ActivationFormat::kQ8_K, ActivationFormat::kQ8_32})
    if (is_read(format, readers)) input.as(format).store(kernels(), i, row);
}

void PassWorker::copy_row(const InputRows& to, std::size_t i, const InputRows& from,
                          std::size_t from_i, Readers readers) {
  for (const ActivationFormat format :
       {ActivationFormat::kQ8_K, ActivationFormat::kQ8_32, ActivationFormat::kF32})
    if (is_read(format, readers)) to.as(format).copy_row(i, from.as(format), from_i);
}

bool PassWorker::has_updates(const PackedMatrix& w) const {
  return pass_.uses_adapters_ &&
         std::ranges::any_of(pass_.adapters_, [&](const auto& a) { return a->of(w) != nullptr; });
}

template <typename Visit>
void PassWorker::each_update(const PackedMatrix& w, const InputRows& input, std::size_t first,
                             std::size_t last, Visit visit) const {
  if (!pass_.uses_adapters_ || input.pass_rows.empty()) return;
  float* place = input.memory->low_rank.data();
  for (std::size_t i = 0; i < pass_.adapters_.size(); ++i) {
    const Adapter& adapter = *pass_.adapters_[i];
    const auto scale_of = [&](std::size_t t) {
      const std::span<const float> scales = rows()[input.pass_rows[t]].segment->adapters;
      return i < scales.size() ? scales[i] : 0.0F;
    };
    const LowRankUpdate* const update = adapter.of(w);
    for (std::size_t begin = first; update != nullptr && begin < last;) {
      const float scale = scale_of(begin);
      std::size_t end = begin + 1;
      while (end < last && scale_of(end) == scale) ++end;
      if (scale != 0)
        visit(*update, scale, begin, end, place + update->place * input.n + begin * update->rank());
      begin = end;
    }
    place += adapter.width() * input.n;
  }
}

void PassWorker::reduce_rows(const InputRows& input, std::size_t first, std::size_t last,
                             Readers readers) {
  for (const PackedMatrix* w : readers)
    each_update(*w, input, first, last,
                [&](const LowRankUpdate& update, float scale, std::size_t begin, std::size_t end,
                    float* low_rank) {
                  multiply(update.a, {0, update.rank()}, input.f32 + begin * input.features,
                           end - begin, low_rank, Epilogue::kStore);
                  const float s = update.factor(scale);
                  for (float& x : std::span(low_rank, (end - begin) * update.rank())) x *= s;
                });
}

void PassWorker::add_updates(const PackedMatrix& w, Worker::Range rows, const InputRows& input,
                             float* y) {
  each_update(
      w, input, 0, input.n,
      [&](const LowRankUpdate& update, float, std::size_t begin, std::size_t end, float* low_rank) {
        multiply(update.b, rows, low_rank, end - begin, y + begin * w.n_rows(), Epilogue::kAdd);
      });
}

void PassWorker::multiply(const PackedMatrix& w, Worker::Range rows, float* x, std::size_t n,
                          float* y, Epilogue epilogue) {
  const auto bytes = std::as_writable_bytes(std::span(x, n * w.n_cols()));
  matmul(kernels(), w, rows, {bytes, ActivationFormat::kF32, n, w.n_cols()}, y, w.n_rows(),
         epilogue, own_.product);
}

template <typename MakeRow>
void PassWorker::prepare_rows(PassOp op, const InputRows& input, Readers readers,
                              MakeRow make_row) {
  const auto prepare = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      make_row(i);
      store_row(input, i, readers);
    }
    reduce_rows(input, begin, end, readers);
    lap(op);
  };
  if (input.n == 1) return prepare(0, 1);
  // Codes lie token by token within a block of columns: eight tokens' fill whole cache lines, which
  // no other worker then writes.
  constexpr std::size_t kRowsInLines = 8;
  static_assert(kRowsInLines * sizeof(KernelQ8x32) % 64 == 0);
  const bool enough = input.n >= kRowsInLines * static_cast<std::size_t>(worker_.count);
  const std::size_t unit = enough ? kRowsInLines : 1;
  run_tasks((input.n + unit - 1) / unit,
            [&](std::size_t task) { prepare(task * unit, std::min(input.n, (task + 1) * unit)); });
}

InputRows PassWorker::norm_rows(std::span<const float> weight, std::span<const std::size_t> rows,
                                Readers readers) {
  InputMemory& memory = inputs_of(rows.size());
  const InputRows input{&memory, memory.normed.data(), rows.size(), config().d_model, 0, rows};
  prepare_rows(PassOp::kNorm, input, readers, [&](std::size_t i) {
    kernels().rms_norm(residual(rows[i]).data(), weight.data(), input.features, config().norm_eps,
                       input.f32 + i * input.features);
  });
  return input;
}

InputRows PassWorker::load_rows(PassOp op, float* x, std::size_t features, Readers readers) {
  const std::size_t n = rows().size();
  const InputRows input{&inputs_of(n), x, n, features, 0, std::span(pass_.all_rows_).first(n)};
  prepare_rows(op, input, readers, [](std::size_t) {});
  return input;
}

void PassWorker::product(PassOp op, const PackedMatrix& w, Worker::Range rows,
                         const InputRows& input, float* y, Epilogue epilogue) {
  matmul(kernels(), w, rows, input.as(format_for(w)), y, w.n_rows(), epilogue, own_.product);
  add_updates(w, rows, input, y);
  const auto n_rows = static_cast<double>(rows.end - rows.begin);
  own_.clock.lap(op, n_rows * static_cast<double>(row_bytes(w.type(), w.n_cols())),
                 n_rows * static_cast<double>(w.n_cols() * input.n));
}

void PassWorker::product(PassOp op, const PackedMatrix& w, std::span<const float> bias,
                         Worker::Range rows, const InputRows& input, float* y) {
  product(op, w, rows, input, y);
  for (std::size_t t = 0; t < input.n && !bias.empty(); ++t)
    for (std::size_t r = rows.begin; r < rows.end; ++r) y[t * w.n_rows() + r] += bias[r];
}

void PassWorker::add_product(PassOp op, const PackedMatrix& w, const InputRows& input,
                             std::span<const float> norm, std::size_t layer, AddedTaps taps,
                             std::span<const float> bias) {
  const float scale = config().residual_scale;
  const bool apart = has_probe() || !norm.empty() || !bias.empty() || scale != 1.0F ||
                     w.has_scales() || has_updates(w);
  float* const y = apart ? pass_.output_.data() : pass_.x_.data();
  const RowTasks tasks = tasks_of(w, input.n);
  run_tasks(tasks.size(), [&](std::size_t i) {
    if (!apart) return product(op, w, tasks[i], input, y, Epilogue::kAdd);
    product(op, w, bias, tasks[i], input, y);
  });
  if (!apart) return;
  const std::size_t d_model = config().d_model;
  tap(layer, taps.product, y, d_model);
  if (!norm.empty()) {
    run_tasks(input.n, [&](std::size_t t) {
      kernels().rms_norm(y + t * d_model, norm.data(), d_model, config().norm_eps, y + t * d_model);
      lap(PassOp::kNorm);
    });
    tap(layer, taps.norm, y, d_model);
  }
  const auto [begin, end] = worker_.share(input.n * d_model);
  for (std::size_t i = begin; i < end; ++i) pass_.x_[i] += y[i] * scale;
  wait();
}

void PassWorker::scale_residual(float factor) {
  const auto [begin, end] = worker_.share(rows().size() * config().d_model);
  for (std::size_t i = begin; i < end; ++i) pass_.x_[i] *= factor;
  wait();
}

void PassWorker::send(int layer, std::string_view name, float* values, std::size_t features,
                      std::size_t first_row) {
  if (!has_probe()) return;
  if (worker_.id == 0) {
    pass_.probe_->tap(layer, name, {values, (rows().size() - first_row) * features}, features,
                      first_row);
  }
  wait();
}

}  // namespace llm
