#include "validate/provenance/row_recompute.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/thread_team.h"

namespace llm {
namespace {

constexpr std::size_t kMatrixRows = 512;  // of a matrix; whole panels

}  // namespace

RowRecompute::RowRecompute(const Model& model, KvType kv, std::span<const TokenId> tokens,
                           const RowTable& table)
    : model_(model), kv_(kv), tokens_(tokens), table_(table), definition_(model) {}

Result<RowValues> RowRecompute::make(std::vector<std::size_t> wanted,
                                     const RowValues& inputs) const {
  LLM_TRY(RowValues made, RowValues::allocate(table_, std::move(wanted)));
  const std::span<const std::size_t> rows = made.rows();
  std::vector<Task> products;
  std::vector<Group> others;
  for (std::size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    while (end < rows.size() && table_.column_of(rows[end]) == table_.column_of(rows[begin])) ++end;
    const std::size_t size = (end - begin) * table_.width(rows[begin]);
    const Group group{rows.subspan(begin, end - begin), {made[begin].data(), size}};
    const auto& [tap, layer] = table_.tap_of(rows[begin]);
    if (tap->op != TapOp::kProduct) {
      others.push_back(group);
      continue;
    }
    for (reference::Product& product : definition_.products(
             *tap, layer, gather(group.rows, 0, inputs), gather(group.rows, 1, inputs))) {
      Task& task = products.emplace_back(std::move(product), definition_.divisor(*tap),
                                         definition_.cap(*tap), group.y);
      task.result.resize(task.product.places.size() * task.product.w.n_rows());
    }
  }

  std::vector<std::function<void(Scratch&)>> tasks;
  for (Task& task : products) {
    const std::size_t n_rows = task.product.w.n_rows();
    for (std::size_t r = 0; r < n_rows; r += kMatrixRows) {
      const Worker::Range range{r, std::min(r + kMatrixRows, n_rows)};
      tasks.emplace_back([&, range](Scratch& own) { multiply(task, range, own); });
    }
  }
  std::vector<std::unique_ptr<SequenceState>> caches;
  for (const Group& group : others) {
    const TapOp op = table_.tap_of(group.rows[0]).row->op;
    if (op != TapOp::kAttention && !has_state(op)) {
      tasks.emplace_back([&](Scratch&) { interpret(group, inputs); });
      continue;
    }
    const std::size_t n = table_.position_of(group.rows.back()) + 1;
    const auto layer = static_cast<std::size_t>(table_.tap_of(group.rows[0]).layer);
    LLM_TRY(auto pool, KvPool::create(model_.config().only(layer), KvGroups::pages_for(n), kv_));
    caches.push_back(std::make_unique<SequenceState>(std::move(pool)));
    SequenceState& cache = *caches.back();
    LLM_CHECK(cache.reserve(0, n));
    tasks.emplace_back([&, op](Scratch& own) {
      if (op != TapOp::kAttention) return interpret_in_turn(group, inputs, cache);
      attend(group, inputs, cache, own);
    });
  }
  std::vector<Scratch> scratch;
  for (int i = 0; i < model_.threads(); ++i) {
    LLM_TRY(Scratch own, allocate(products));
    scratch.push_back(std::move(own));
  }
  run_parallel(model_.threads(), [&](Worker worker) {
    Scratch& own = scratch[static_cast<std::size_t>(worker.id)];
    worker.take_tasks(tasks.size(), [&](std::size_t i) { tasks[i](own); });
  });
  return made;
}

ActivationFormat RowRecompute::format_of(const PackedMatrix& w) const {
  return model_.compute() == Compute::kInt8 ? activation_format(w.type()) : ActivationFormat::kF32;
}

Result<RowRecompute::Scratch> RowRecompute::allocate(std::span<const Task> products) const {
  std::size_t activations = 0;
  std::size_t workspace = 0;
  std::size_t partial = 0;
  for (const LayerSpec& layer : model_.config().layers) {
    const AttentionSpec* spec = layer.attention();
    if (spec == nullptr) continue;
    const std::size_t heads = spec->heads_per_kv();
    workspace = std::max(workspace, attend_workspace_bytes({kv_, spec->head_dim}, heads));
    partial = std::max(partial, (heads + 1) * (2 + spec->head_dim));
  }
  for (const auto& [product, divisor, cap, y, result] : products) {
    const std::size_t n = product.places.size();
    const PackedMatrix& w = product.w;
    activations = std::max(activations, ActivationMatrix::bytes(format_of(w), n, w.n_cols()));
    workspace = std::max(workspace, matmul_workspace_bytes(n));
  }
  Scratch scratch;
  LLM_TRY(scratch.activations, AlignedBuffer<std::byte>::allocate(activations, "activations"));
  LLM_TRY(scratch.workspace, Workspace::allocate(workspace, "workspace"));
  LLM_TRY(scratch.partial, AlignedBuffer<float>::allocate(partial, "workspace"));
  return scratch;
}

/// The i-th input of each row, one after the other.
std::vector<float> RowRecompute::gather(std::span<const std::size_t> rows, std::size_t i,
                                        const RowValues& inputs) const {
  std::vector<float> x;
  const auto column = table_.input_column(rows[0], i);
  for (const std::size_t row : rows) {
    if (!column) break;
    const auto values = inputs.of(table_.row(*column, table_.position_of(row)));
    x.insert(x.end(), values.begin(), values.end());
  }
  return x;
}

void RowRecompute::multiply(Task& task, Worker::Range rows, Scratch& scratch) const {
  const auto& [w, bias, values, places] = task.product;
  const KernelTable& kernels = *kernel_table(model_.isa());
  ActivationMatrix x(scratch.activations.span(), format_of(w), places.size(), w.n_cols());
  for (std::size_t t = 0; t < places.size(); ++t) x.store(kernels, t, task.product.row(t));
  matmul(kernels, w, rows, x, task.result.data(), w.n_rows(), Epilogue::kStore, scratch.workspace);
  for (std::size_t t = 0; t < places.size(); ++t) {
    for (std::size_t r = rows.begin; r < rows.end; ++r) {
      float& y = task.y[places[t] * w.n_rows() + r];
      y = task.result[t * w.n_rows() + r];
      if (!bias.empty()) y += bias[r];
      y /= task.divisor;
      if (task.cap > 0) y = contract::soft_cap(y, task.cap);
    }
  }
}

void RowRecompute::attend(const Group& group, const RowValues& inputs, SequenceState& cache,
                          Scratch& scratch) const {
  const KernelTable& kernels = *kernel_table(model_.isa());
  const KvRounding rounding{kernels.to_half, kernels.quantize_q8x32};
  const auto& [tap, layer] = table_.tap_of(group.rows[0]);
  const AttentionSpec& spec = model_.config().attention(static_cast<std::size_t>(layer));
  const std::span<const float> sinks = definition_.vector(tap->weight, layer);
  const std::size_t q_column = *table_.input_column(group.rows[0], 0);
  const std::size_t k_column = *table_.input_column(group.rows[0], 1);
  const std::size_t v_column = *table_.input_column(group.rows[0], 2);
  const std::size_t heads = spec.heads_per_kv();
  const std::size_t partial_size = 2 + spec.head_dim;
  float* const sink = scratch.partial.data() + heads * partial_size;
  std::size_t stored = 0;  // positions before it are, as far as rows from here on read them
  for (std::size_t t = 0; t < group.rows.size(); ++t) {
    const std::size_t position = table_.position_of(group.rows[t]);
    for (std::size_t p = std::max(stored, table_.first_read(group.rows[t])); p <= position; ++p)
      cache.store(0, 0, p, inputs.of(table_.row(k_column, p)), inputs.of(table_.row(v_column, p)),
                  rounding);
    stored = position + 1;
    const auto q = inputs.of(table_.row(q_column, position));
    for (std::size_t kv_head = 0; kv_head < spec.n_kv_heads; ++kv_head) {
      kernels.attend({.q = q.data() + kv_head * heads * spec.head_dim,
                      .q_stride = spec.q_rows(),
                      .pages = cache.pages(0).data(),
                      .keys_offset = cache.pool().keys_offset(0, kv_head),
                      .values_offset = cache.pool().values_offset(0, kv_head),
                      .layout = cache.pool().layout(0),
                      .n_heads = heads,
                      .n_tokens = 1,
                      .first_position = position,
                      .window = spec.window,
                      .chunk_begin = KvGroups::first_page(spec.window, position),
                      .chunk_end = KvGroups::pages_for(position + 1),
                      .scale = spec.scale,
                      .cap = spec.score_cap,
                      .partial = scratch.partial.data(),
                      .workspace = scratch.workspace.data()});
      for (std::size_t h = 0; h < heads; ++h) {
        const std::size_t head = kv_head * heads + h;
        float* const sum = scratch.partial.data() + h * partial_size;
        if (!sinks.empty()) {
          std::fill_n(sink, partial_size, 0.0F);
          sink[0] = sinks[head];
          sink[1] = 1;
          kernels.merge(sum, sink, spec.head_dim);
        }
        kernels.finish(sum, spec.head_dim,
                       group.y.data() + (t * spec.n_heads + head) * spec.head_dim);
      }
    }
  }
}

void RowRecompute::interpret(const Group& group, const RowValues& inputs) const {
  const auto& [tap, layer] = table_.tap_of(group.rows[0]);
  std::vector<std::size_t> positions;
  std::vector<TokenId> tokens;
  for (const std::size_t row : group.rows) {
    positions.push_back(table_.position_of(row));
    tokens.push_back(tokens_[positions.back()]);
  }
  std::array<std::vector<float>, 3> x;
  reference::OpInputs in{.tokens = tokens, .positions = positions};
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = gather(group.rows, i, inputs);
    in.taps[i] = x[i];
  }
  std::ranges::copy(definition_.run(*tap, layer, in), group.y.begin());
}

void RowRecompute::interpret_in_turn(const Group& group, const RowValues& inputs,
                                     SequenceState& cache) const {
  const auto& [tap, layer] = table_.tap_of(group.rows[0]);
  const std::size_t width = table_.width(group.rows[0]);
  const std::size_t column = table_.column_of(group.rows[0]);
  // A convolution goes back to what each row reads; another state has met all.
  for (std::size_t begin = 0, end = 0; begin < group.rows.size(); begin = end) {
    end = tap->op == TapOp::kConvolution ? begin + 1 : group.rows.size();
    const std::size_t first = table_.first_read(group.rows[begin]);
    std::vector<std::size_t> rows;
    std::vector<std::size_t> positions;
    for (std::size_t p = first; p <= table_.position_of(group.rows[end - 1]); ++p) {
      rows.push_back(table_.row(column, p));
      positions.push_back(p);
    }
    cache.truncate(0);
    LLM_CHECK(cache.reserve(0, 1));
    std::array<std::vector<float>, 3> x;
    reference::OpInputs in{.tokens = {}, .positions = positions, .cache = &cache};
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = gather(rows, i, inputs);
      in.taps[i] = x[i];
    }
    const std::vector<float> y = definition_.run(*tap, layer, in);
    for (std::size_t i = begin; i < end; ++i)
      std::copy_n(y.begin() + static_cast<std::ptrdiff_t>(
                                  (table_.position_of(group.rows[i]) - first) * width),
                  width, group.y.begin() + static_cast<std::ptrdiff_t>(i * width));
  }
}

}  // namespace llm
