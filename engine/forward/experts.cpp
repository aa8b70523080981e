#include "engine/forward/experts.h"

#include <algorithm>

#include "engine/forward/route.h"

namespace llm {
namespace {

std::vector<PackedMatrix> parts_of(const PackedMatrix& all, std::size_t n) {
  const std::size_t n_rows = all.n_rows() / n;
  std::vector<PackedMatrix> parts;
  for (std::size_t e = 0; e < n; ++e) parts.push_back(all.part(e * n_rows, n_rows));
  return parts;
}

}  // namespace

Result<Experts> Experts::create(const Model& model, const PassSizes& sizes) {
  const HyperParameters& config = model.config();
  const std::size_t n_rows = sizes.max_batch;
  FfnSpec most;  // of each size the largest
  std::size_t n_slots = 0;
  std::size_t n_features = 0;  // of gate, all slots of a pass
  Experts part(config);
  for (std::size_t i = 0; i < config.n_layers; ++i) {
    part.layers_.emplace_back();
    for (const FfnSpec& spec : config.layers[i].ffns) {
      if (spec.n_experts == 0) continue;
      const LayerWeights& w = model.weights().layers[i];
      part.layers_[i] = {parts_of(w.ffn_gate, spec.n_experts), parts_of(w.ffn_up, spec.n_experts),
                         parts_of(w.ffn_down, spec.n_experts)};
      most.n_experts = std::max(most.n_experts, spec.n_experts);
      most.d_ff = std::max(most.d_ff, spec.d_ff);
      n_slots = std::max(n_slots, n_rows * spec.n_used);
      n_features = std::max(n_features, n_rows * spec.n_used * spec.d_ff);
    }
  }
  LLM_TRY(part.router_, allocate_activations(n_rows * most.n_experts));
  part.chosen_.resize(n_slots);
  part.weights_.resize(n_slots);
  part.slot_of_.resize(n_slots);
  part.row_of_slot_.resize(n_slots);
  part.group_of_slot_.resize(n_slots);
  part.gathered_.reserve(n_slots);
  part.groups_.reserve(most.n_experts);
  part.count_.resize(most.n_experts);
  LLM_TRY(part.slots_, InputMemory::allocate(config, n_slots, most.d_ff));
  LLM_TRY(part.gate_, allocate_activations(n_features));
  LLM_TRY(part.up_, allocate_activations(n_features));
  LLM_TRY(part.out_, allocate_activations(n_slots * config.d_model));
  LLM_TRY(part.mixed_, allocate_activations(n_rows * config.d_model));
  LLM_TRY(part.shared_, SharedExpert::create(model, sizes));
  return part;
}

void Experts::run(PassWorker& at, std::size_t layer, const FfnSpec& spec) {
  const LayerWeights& w = at.weights().layers[layer];
  const Matrices& experts = layers_[layer];
  const std::size_t d_ff = spec.d_ff;
  const std::size_t d_model = config_.d_model;
  const Activation kind = spec.activation;
  // Of one expert; empty where there are none.
  const auto bias_of = [&spec](std::span<const float> all, std::uint32_t expert) {
    const std::size_t n = all.size() / spec.n_experts;
    return all.subspan(expert * n, n);
  };

  InputRows normed = spec.own_norms
                         ? at.norm_rows(w.router_norm.span(), {&w.ffn_gate_inp})
                         : at.norm_rows(w.ffn_norm.span(),
                                        {&w.ffn_gate_inp, &w.ffn_gate, &w.ffn_up, &w.ffn_gate_shexp,
                                         &w.ffn_up_shexp, &w.ffn_gate_inp_shexp});
  at.tap(layer, spec.own_norms ? "router_norm" : "ffn_norm", normed.f32, normed.features);
  choose(at, layer, spec, normed);
  if (spec.own_norms) {
    normed = at.norm_rows(w.experts_norm.span(), {&w.ffn_gate, &w.ffn_up});
    at.tap(layer, "experts_norm", normed.f32, normed.features);
  }
  const std::size_t n_slots = normed.n * spec.n_used;

  if (!gathered_.empty()) {
    at.run_tasks(gathered_.size(), [&](std::size_t i) {
      const std::size_t slot = gathered_[i];
      const Group& group = group_of(slot);
      at.copy_row(rows_of(group, slots_.normed.data(), d_model), slot - group.first, normed,
                  row_of_slot_[slot], {&w.ffn_gate, &w.ffn_up});
      at.lap(PassOp::kRouter);
    });
  }
  const auto activate = [&](const Group& group, Worker::Range columns) {
    for (std::size_t slot = group.first; slot < group.first + group.n; ++slot) {
      const std::size_t begin = slot * d_ff + columns.begin;
      at.kernels().activate(kind, gate_.data() + begin, up_.data() + begin,
                            columns.end - columns.begin);
    }
    at.lap(PassOp::kActivation);
  };
  each_product(at, experts.gate, [&](const Group& group, Worker::Range rows) {
    const InputRows input = inputs_of(group, normed);
    const std::size_t place = group.first * d_ff;
    const std::uint32_t e = group.expert;
    at.product(PassOp::kGateUp, experts.gate[e], bias_of(w.ffn_gate_bias.span(), e), rows, input,
               gate_.data() + place);
    at.product(PassOp::kGateUp, experts.up[e], bias_of(w.ffn_up_bias.span(), e), rows, input,
               up_.data() + place);
    if (!at.has_probe()) activate(group, rows);
  });
  if (at.has_probe()) {
    tap(at, layer, spec, "gate", gate_.data(), d_ff);
    tap(at, layer, spec, "up", up_.data(), d_ff);
    at.run_tasks(groups_.size(), [&](std::size_t g) { activate(groups_[g], {0, d_ff}); });
  }
  tap(at, layer, spec, "ffn_act", gate_.data(), d_ff);

  at.run_tasks(n_slots, [&](std::size_t slot) {
    const Group& group = group_of(slot);
    at.store_row(rows_of(group, gate_.data(), d_ff), slot - group.first, {&w.ffn_down});
    at.lap(PassOp::kNorm);
  });
  each_product(at, experts.down, [&](const Group& group, Worker::Range rows) {
    const std::uint32_t e = group.expert;
    at.product(PassOp::kFfnDown, experts.down[e], bias_of(w.ffn_down_bias.span(), e), rows,
               rows_of(group, gate_.data(), d_ff), out_.data() + group.first * d_model);
  });
  tap(at, layer, spec, "ffn_out", out_.data(), d_model);

  const auto add = [&](std::size_t t) {
    const std::span<float> x = at.residual(t);
    for (std::size_t i = 0; i < d_model; ++i)
      x[i] += mixed_[t * d_model + i] * config_.residual_scale;
    at.lap(PassOp::kRouter);
  };
  const bool adds_later = at.has_probe() || spec.d_shared > 0 || w.ffn_post_norm.size() > 0;
  at.run_tasks(normed.n, [&](std::size_t t) {
    float* const mixed = mixed_.data() + t * d_model;
    std::fill_n(mixed, d_model, 0.0F);
    for (std::size_t i = t * spec.n_used; i < (t + 1) * spec.n_used; ++i)
      at.kernels().axpy(weights_[i], out_.data() + slot_of_[i] * d_model, d_model, mixed);
    if (!adds_later) add(t);
  });
  at.tap(layer, "ffn_mix", mixed_.data(), d_model);
  const auto norm_mixed = [&](std::span<const float> weight, std::string_view name) {
    at.run_tasks(normed.n, [&](std::size_t t) {
      float* const mixed = mixed_.data() + t * d_model;
      at.kernels().rms_norm(mixed, weight.data(), d_model, config_.norm_eps, mixed);
      at.lap(PassOp::kNorm);
    });
    at.tap(layer, name, mixed_.data(), d_model);
  };
  if (spec.own_norms) {
    norm_mixed(w.mix_norm.span(), "mix_norm");
    normed = at.norm_rows(w.ffn_norm.span(), {&w.ffn_gate_shexp, &w.ffn_up_shexp});
    at.tap(layer, "ffn_norm", normed.f32, normed.features);
  }
  if (spec.d_shared > 0) shared_.run(at, layer, spec, normed, mixed_.data());
  if (w.ffn_post_norm.size() > 0) norm_mixed(w.ffn_post_norm.span(), "ffn_post");
  if (adds_later) at.run_tasks(normed.n, add);
  at.tap_residual(layer, "l_out");
}

void Experts::choose(PassWorker& at, std::size_t layer, const FfnSpec& spec,
                     const InputRows& normed) {
  const PackedMatrix& w = at.weights().layers[layer].ffn_gate_inp;
  const std::span<const float> bias = at.weights().layers[layer].ffn_gate_inp_bias.span();
  const RowTasks tasks = at.tasks_of(w, normed.n);
  at.run_tasks(tasks.size(), [&](std::size_t i) {
    at.product(PassOp::kRouter, w, bias, tasks[i], normed, router_.data());
    if (config_.router_divisor == 1.0F) return;
    for (std::size_t t = 0; t < normed.n; ++t)
      for (std::size_t r = tasks[i].begin; r < tasks[i].end; ++r)
        router_[t * spec.n_experts + r] /= config_.router_divisor;
  });
  at.tap(layer, "router", router_.data(), spec.n_experts);
  const std::span<const float> expert_bias = at.weights().layers[layer].expert_bias.span();
  at.run_tasks(normed.n, [&](std::size_t t) {
    route(spec, router_.span().subspan(t * spec.n_experts, spec.n_experts), expert_bias,
          std::span(chosen_).subspan(t * spec.n_used, spec.n_used),
          std::span(weights_).subspan(t * spec.n_used, spec.n_used));
    at.lap(PassOp::kRouter);
  });
  if (at.id() == 0) order_slots(spec, normed.n);
  at.wait();
}

void Experts::order_slots(const FfnSpec& spec, std::size_t n_rows) {
  std::ranges::fill(count_, 0);
  const auto chosen = std::span(chosen_).first(n_rows * spec.n_used);
  for (const std::uint32_t expert : chosen) ++count_[expert];
  groups_.clear();
  gathered_.clear();
  std::size_t end = 0;
  for (std::uint32_t e = 0; e < count_.size(); ++e) {
    if (count_[e] == 0) continue;
    groups_.push_back({e, end, count_[e]});
    end += count_[e];
  }
  n_batches_ = static_cast<std::size_t>(
      std::ranges::partition(groups_, [](const Group& group) { return group.n > 1; }).begin() -
      groups_.begin());
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const auto& [expert, first, n] = groups_[g];
    count_[expert] = first;  // where its next slot is
    std::fill_n(group_of_slot_.begin() + static_cast<std::ptrdiff_t>(first), n, g);
  }
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const std::size_t slot = count_[chosen[i]]++;
    slot_of_[i] = slot;
    row_of_slot_[slot] = i / spec.n_used;
    if (group_of(slot).n < n_rows) gathered_.push_back(slot);
  }
}

InputRows Experts::rows_of(const Group& group, float* values, std::size_t features) {
  return {&slots_, values + group.first * features, group.n, features, group.first};
}

InputRows Experts::inputs_of(const Group& group, const InputRows& normed) {
  return group.n == normed.n ? normed : rows_of(group, slots_.normed.data(), config_.d_model);
}

template <typename Task>
void Experts::each_product(PassWorker& at, std::span<const PackedMatrix> matrices, Task task) {
  // Tasks depend on the shape, which is one for all experts, and on whether rows are several.
  const RowTasks of_batch = at.tasks_of(matrices[0], 2);
  const RowTasks of_one = at.tasks_of(matrices[0], 1);
  const std::size_t n_of_batches = n_batches_ * of_batch.size();
  const std::size_t n = n_of_batches + (groups_.size() - n_batches_) * of_one.size();
  at.run_tasks(n, [&](std::size_t i) {
    if (i < n_of_batches) return task(groups_[i / of_batch.size()], of_batch[i % of_batch.size()]);
    const std::size_t rest = i - n_of_batches;
    task(groups_[n_batches_ + rest / of_one.size()], of_one[rest % of_one.size()]);
  });
}

void Experts::tap(PassWorker& at, std::size_t layer, const FfnSpec& spec, std::string_view name,
                  float* values, std::size_t features) {
  if (!at.has_probe()) return;
  const std::size_t n = at.rows().size() * spec.n_used;
  float* const by_row = slots_.normed.data();
  if (at.id() == 0)
    for (std::size_t i = 0; i < n; ++i)
      std::copy_n(values + slot_of_[i] * features, features, by_row + i * features);
  at.tap(layer, name, by_row, spec.n_used * features);
  if (at.id() == 0)  // the probe may have changed them
    for (std::size_t i = 0; i < n; ++i)
      std::copy_n(by_row + i * features, features, values + slot_of_[i] * features);
  at.wait();
}

}  // namespace llm
