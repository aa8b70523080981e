#include "engine/forward/shared_expert.h"

#include "quant/numerics/activation.h"

namespace llm {

Result<SharedExpert> SharedExpert::create(const Model& model, const PassSizes& sizes) {
  SharedExpert part;
  const std::size_t d_shared = model.config().most(&LayerSpec::d_shared);
  const std::size_t n = d_shared > 0 ? sizes.max_batch : 0;
  LLM_TRY(part.gate_, allocate_activations(n * d_shared));
  LLM_TRY(part.up_, allocate_activations(n * d_shared));
  LLM_TRY(part.out_, allocate_activations(n * model.config().d_model));
  LLM_TRY(part.weight_, allocate_activations(n));
  return part;
}

void SharedExpert::run(PassWorker& at, std::size_t layer, const FfnSpec& spec,
                       const InputRows& normed, float* mixed) {
  const LayerWeights& w = at.weights().layers[layer];
  const std::size_t d_shared = spec.d_shared;
  const std::size_t d_model = at.config().d_model;
  const RowTasks tasks = at.tasks_of(w.ffn_gate_shexp, normed.n);
  const bool has_weight = spec.weighs_shared && !spec.own_norms;
  const RowTasks of_weight = at.tasks_of(has_weight ? w.ffn_gate_inp_shexp : w.ffn_gate_shexp,
                                         normed.n);  // the former may be absent
  const std::size_t n_of_weight = has_weight ? of_weight.size() : 0;
  const auto activate_columns = [&](Worker::Range columns) {
    for (std::size_t t = 0; t < normed.n; ++t) {
      const std::size_t begin = t * d_shared + columns.begin;
      at.kernels().activate(spec.activation, gate_.data() + begin, up_.data() + begin,
                            columns.end - columns.begin);
    }
    at.lap(PassOp::kActivation);
  };
  at.run_tasks(tasks.size() + n_of_weight, [&](std::size_t i) {
    if (i >= tasks.size())
      return at.product(PassOp::kRouter, w.ffn_gate_inp_shexp, of_weight[i - tasks.size()], normed,
                        weight_.data());
    at.product(PassOp::kGateUp, w.ffn_gate_shexp, tasks[i], normed, gate_.data());
    at.product(PassOp::kGateUp, w.ffn_up_shexp, tasks[i], normed, up_.data());
    if (!at.has_probe()) activate_columns(tasks[i]);
  });
  if (at.has_probe()) {
    at.tap(layer, "shared_gate", gate_.data(), d_shared);
    at.tap(layer, "shared_up", up_.data(), d_shared);
    at.run_tasks(tasks.size(), [&](std::size_t i) { activate_columns(tasks[i]); });
  }
  at.tap(layer, "shared_act", gate_.data(), d_shared);

  const InputRows active = at.load_rows(PassOp::kNorm, gate_.data(), d_shared, {&w.ffn_down_shexp});
  const RowTasks of_down = at.tasks_of(w.ffn_down_shexp, active.n);
  at.run_tasks(of_down.size(), [&](std::size_t i) {
    at.product(PassOp::kFfnDown, w.ffn_down_shexp, of_down[i], active, out_.data());
  });
  at.tap(layer, "shared_out", out_.data(), d_model);
  if (spec.own_norms) {
    at.run_tasks(active.n, [&](std::size_t t) {
      float* const out = out_.data() + t * d_model;
      at.kernels().rms_norm(out, w.shared_norm.data(), d_model, at.config().norm_eps, out);
      at.lap(PassOp::kNorm);
    });
    at.tap(layer, "shared_norm", out_.data(), d_model);
  } else if (has_weight) {
    at.tap(layer, "shared_weight", weight_.data(), 1);
  }
  at.run_tasks(active.n, [&](std::size_t t) {
    if (!has_weight) {
      for (std::size_t i = t * d_model; i < (t + 1) * d_model; ++i) mixed[i] += out_[i];
      return at.lap(PassOp::kRouter);
    }
    const float share = contract::activate(Activation::kSigmoid, weight_[t], 1.0F);
    at.kernels().axpy(share, out_.data() + t * d_model, d_model, mixed + t * d_model);
    at.lap(PassOp::kRouter);
  });
  at.tap(layer, "ffn_sum", mixed, d_model);
}

}  // namespace llm
