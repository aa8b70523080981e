#include "tests/fault_injection/pass.h"

#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/thread_team.h"
#include "engine/forward/forward.h"
#include "quant/formats/dequantize.h"
#include "quant/kernels/matmul.h"

namespace llm::faults {
namespace {

/// Where a product's output lies.
struct Region {
  std::atomic<float*> begin = nullptr;
  std::atomic<std::size_t> stride = 0;
};

struct State {
  std::mutex mutex;  ///< of registration; no pass runs meanwhile
  std::map<const PackedMatrix*, Op> matrices;
  std::map<const PackedMatrix*, std::span<const float>> biases;
  std::map<const float*, Op> norms;

  std::vector<std::size_t> positions;  ///< of the pass's rows
  std::vector<std::size_t> logit_positions;
  std::vector<SequenceState*> caches;
  Compute compute = Compute::kInt8;
  std::size_t d_model = 0;
  bool probed = false;
  std::atomic<std::size_t> n_embedded = 0;
  std::atomic<int> layer = -1;
  std::array<Region, 3> regions;  ///< q, k, gate
};
constexpr std::array<std::string_view, 3> kRegions = {"q", "k", "gate"};

State& state() {
  static State s;
  return s;
}

void register_model(const Model& model) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  s.matrices.clear();
  s.biases.clear();
  s.norms.clear();
  s.compute = model.compute();
  const ModelWeights& weights = model.weights();
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    const LayerWeights& w = weights.layers[i];
    const int layer = static_cast<int>(i);
    const auto add = [&](const PackedMatrix& matrix, std::string_view name) {
      s.matrices[&matrix] = {name, layer};
    };
    add(w.attn_q, "q"), add(w.attn_k, "k"), add(w.attn_v, "v"), add(w.attn_output, "attn_out");
    add(w.ffn_gate, "gate"), add(w.ffn_up, "up"), add(w.ffn_down, "ffn_out");
    add(w.attn_qkv, "qkv"), add(w.attn_gate, "z"), add(w.ssm_out, "attn_out");
    add(w.ssm_beta, "beta"), add(w.ssm_alpha, "alpha");
    add(w.conv_b, "conv_b"), add(w.conv_c, "conv_c"), add(w.conv_x, "conv_x");
    add(w.conv_out, "attn_out");
    add(w.attn_q_gate, "attn_gate");
    add(w.ffn_gate_shexp, "shared_gate"), add(w.ffn_down_shexp, "shared_out");
    s.biases[&w.attn_q] = w.attn_q_bias.span();
    s.biases[&w.attn_k] = w.attn_k_bias.span();
    s.biases[&w.attn_v] = w.attn_v_bias.span();
    for (const auto& [norm, name] : {std::pair(&w.attn_norm, "attn_norm"),
                                     {&w.ffn_norm, "ffn_norm"},
                                     {&w.attn_post_norm, "attn_post"},
                                     {&w.ffn_post_norm, "ffn_post"},
                                     {&w.attn_q_norm, "q_norm"},
                                     {&w.attn_k_norm, "k_norm"},
                                     {&w.ssm_norm, "ssm_norm"}})
      if (norm->size() > 0) s.norms[norm->data()] = {name, layer};
  }
  s.d_model = model.config().d_model;
  s.norms[weights.output_norm.data()] = {"result_norm", -1};
  s.matrices[&weights.output()] = {"logits", -1};
}

/// What `map` has for a key, or the default.
template <typename Map>
typename Map::mapped_type value_of(const Map& map, const typename Map::key_type& key) {
  const auto found = map.find(key);
  return found == map.end() ? typename Map::mapped_type() : found->second;
}

thread_local std::vector<std::function<void()>> pending;
thread_local Worker here{0, 1};  ///< outside a region: alone

std::string_view compute_name() { return state().compute == Compute::kInt8 ? "int8" : "f32"; }

void spoil_row(const Fault& fault, const Rows& rows, std::size_t i) {
  float* y = rows.values + i * rows.stride;
  const auto has = [&](std::size_t feature) { return feature >= rows.begin && feature < rows.end; };
  const std::size_t last = rows.features - 1;
  if (fault.is("eighth") && has(last)) put(y[last], y[last] * 1.125F);
  if (fault.is("zero") && has(last)) put(y[last], 0);
  if (fault.is("sign") && has(0)) put(y[0], -y[0]);
  for (std::size_t k = rows.begin; k < rows.end; ++k) {
    if (fault.is("tail") && k + 16 >= rows.features) put(y[k], 0);
    if (fault.is("row_before") && i > 0) put(y[k], (y - rows.stride)[k]);
    if (fault.is("stale")) put(y[k], 0);
  }
}

}  // namespace

Op op_of(const PackedMatrix& matrix) { return value_of(state().matrices, &matrix); }
Op op_of(const float* norm_weight) { return value_of(state().norms, norm_weight); }
std::span<const float> bias_of(const PackedMatrix& matrix) {
  return value_of(state().biases, &matrix);
}

std::size_t pass_rows() { return state().positions.size(); }
int team_size() { return here.count; }
std::span<SequenceState* const> pass_caches() { return state().caches; }

void spoil_rows(Op op, Isa isa, const Rows& rows) {
  const State& s = state();
  if (s.positions.empty()) return;
  const auto fault = planted("forward", {{"op", op.name},
                                         {"layer", op.layer},
                                         {"threads", team_size()},
                                         {"rows", s.positions.size()},
                                         {"probe", s.probed},
                                         {"compute", compute_name()},
                                         {"isa", isa_name(isa)}});
  if (!fault) return;
  const auto& positions = op.name == "logits" ? s.logit_positions : s.positions;
  for (std::size_t i = rows.n; i-- > 0;) {
    const std::size_t row = rows.first + i;
    if (row >= positions.size()) continue;
    if (fault->holds({{"position", positions[row]},
                      {"row", row},
                      {"rows_after", positions.size() - 1 - row}}))
      spoil_row(*fault, rows, i);
  }
}

void spoil_in_place(std::string_view name, Isa isa, float* x, std::size_t begin, std::size_t end,
                    std::string_view made_by) {
  State& s = state();
  if (planted("forward") == nullptr || s.positions.empty()) return;
  for (std::size_t r = 0; r < kRegions.size(); ++r) {
    if (kRegions[r] != made_by) continue;
    float* const first = s.regions[r].begin;
    const std::size_t stride = s.regions[r].stride;
    if (first == nullptr || x < first || x >= first + s.positions.size() * stride) continue;
    const auto at = static_cast<std::size_t>(x - first);
    const std::size_t row = at / stride;
    spoil_rows(
        {name, s.layer}, isa,
        {first + row * stride, stride, 1, at % stride + begin, at % stride + end, stride, row});
  }
}

bool is_late(std::string_view op) {
  if (pass_rows() == 0 || team_size() < 2 || here.id != 1) return false;
  return strikes("late", {{"op", op},
                          {"layer", state().layer.load()},
                          {"rows", pass_rows()},
                          {"threads", team_size()}}) != nullptr;
}

void do_later(std::function<void()> work) { pending.push_back(std::move(work)); }

LLM_WRAP(run_parallel, "_ZN3llm12run_parallelEiRKSt8functionIFvNS_6WorkerEEE", void, int n_threads,
         const std::function<void(Worker)>& body) {
  real_run_parallel(n_threads, [&](Worker worker) {
    here = worker;
    body(worker);
    here = {0, 1};
  });
}

LLM_WRAP(wait, "_ZN3llm4Team4waitEi", void, Team* team, int worker) {
  real_wait(team, worker);
  if (pending.empty()) return;
  std::this_thread::sleep_for(std::chrono::microseconds(500));
  for (const auto& work : std::exchange(pending, {})) work();
}

LLM_WRAP(create_forward, "_ZN3llm7Forward6createERKNS_5ModelEmmNS_6KvTypeE", Result<Forward>,
         const Model& model, std::size_t max_batch, std::size_t context, KvType kv) {
  register_model(model);
  return real_create_forward(model, max_batch, context, kv);
}

namespace {
/// Of rows [0, n), each but the first becomes the one before.
void shift_rows(float* rows, std::size_t n, std::size_t width) {
  if (n < 2) return;
  note_struck();
  std::copy_backward(rows, rows + (n - 1) * width, rows + n * width);
}
}  // namespace

LLM_WRAP(run_delta_net, "_ZN3llm8DeltaNet3runERNS_10PassWorkerEmRKNS_12DeltaNetSpecE", void,
         DeltaNet* self, PassWorker& at, std::size_t layer, const DeltaNetSpec& spec) {
  const auto fault =
      at.id() == 0 ? planted("delta_net",
                             {{"layer", layer}, {"rows", pass_rows()}, {"threads", team_size()}})
                   : std::nullopt;
  std::vector<std::vector<std::byte>> before;
  for (SequenceState* cache : fault ? pass_caches() : std::span<SequenceState* const>()) {
    const auto state = cache->state(layer);
    before.emplace_back(state.begin(), state.end());
  }
  real_run_delta_net(self, at, layer, spec);
  for (std::size_t i = 0; i < before.size(); ++i) {
    SequenceState& cache = *pass_caches()[i];
    const DeltaState old(spec, before[i]);
    const DeltaState now(spec, cache.state(layer));
    for (std::size_t c = 0; c < spec.channels() && fault->is("inputs_turned"); ++c) {
      const float last = now.tail().input(1)[c];
      put(now.tail().input(1)[c], now.tail().input(2)[c]);
      put(now.tail().input(2)[c], last);
    }
    for (std::size_t k = 0; k < spec.k_dim && fault->is("last_column"); ++k)
      put(now.at(spec.n_v_heads - 1, k, spec.v_dim - 1),
          old.at(spec.n_v_heads - 1, k, spec.v_dim - 1));
    for (std::size_t copy = 0; copy < cache.n_copies() && fault->is("copy_of_end"); ++copy) {
      note_struck();
      std::ranges::copy(cache.state(layer), cache.copied_state(copy, layer).begin());
    }
  }
}

LLM_WRAP(run_next_token, "_ZN3llm14NextTokenInput3runERNS_10PassWorkerE", void,
         NextTokenInput* self, PassWorker& at) {
  real_run_next_token(self, at);
  if (at.id() == 0 && at.config().is_mtp() && planted("next_token") != nullptr)
    shift_rows(at.residual(0).data(), at.rows().size(), at.config().d_model);
}

LLM_WRAP(run_output, "_ZN3llm6Output3runERNS_10PassWorkerE", void, Output* self, PassWorker& at) {
  real_run_output(self, at);
  if (at.id() == 0 && planted("norms") != nullptr)
    shift_rows(at.wanted().data() + at.n_logit_rows() * at.weights().output().n_rows(),
               at.wanted_rows().size() - at.n_logit_rows(), at.config().d_model);
}

LLM_WRAP(run_forward,
         "_ZN3llm7Forward3runESt4spanIKNS_11PassSegmentELm18446744073709551615EES1_IfLm"
         "18446744073709551615EEPNS_9ProbeSinkE",
         void, Forward* self, std::span<const PassSegment> segments, std::span<float> logits,
         ProbeSink* probe) {
  State& s = state();
  std::vector<PassSegment> changed(segments.begin(), segments.end());
  std::vector<float> hidden;       // of a pass of further tokens, which has one segment
  std::vector<TokenId> predicted;  // likewise
  for (PassSegment& segment : changed) {
    const auto number = static_cast<std::size_t>(&segment - changed.data());
    const Fault* fault = strikes("segment", {{"segments", segments.size()},
                                             {"segment", number},
                                             {"tokens", segment.tokens.size()},
                                             {"position", segment.first_position},
                                             {"mtp", segment.hidden != nullptr}});
    if (fault == nullptr) continue;
    if (fault->is("row_before") && segment.hidden != nullptr) {
      hidden.assign(segment.hidden, segment.hidden + segment.tokens.size() * s.d_model);
      shift_rows(hidden.data(), segment.tokens.size(), s.d_model);
      segment.hidden = hidden.data();
    }
    if (fault->is("token_before")) {
      predicted.assign(segment.tokens.begin(), segment.tokens.end());
      std::shift_right(predicted.begin(), predicted.end(), 1);
      segment.tokens = predicted;
    }
    if (fault->is("from_zero")) segment.first_position = 0;
    if (fault->is("position_before") && segment.first_position > 0) --segment.first_position;
  }
  s.probed = probe != nullptr;
  s.n_embedded = 0;
  for (const PassSegment& segment : changed) {
    const std::size_t n = segment.tokens.size();
    for (std::size_t t = 0; t < n; ++t) {
      s.positions.push_back(segment.first_position + t);
      if (t + segment.n_logits >= n) s.logit_positions.push_back(segment.first_position + t);
    }
    s.caches.push_back(segment.state);
  }
  const std::size_t n = s.logit_positions.size();
  const bool row_before = probe == nullptr && changed.size() == 1 && n > 0 &&
                          n < s.positions.size() && strikes("logits_row", {{"rows", n}}) != nullptr;
  if (row_before) {
    // Those of the tokens before.
    ++changed[0].n_logits;
    std::vector<float> more(logits.size() / n * (n + 1));
    real_run_forward(self, changed, more, probe);
    std::copy_n(more.begin(), logits.size(), logits.begin());
  } else {
    real_run_forward(self, changed, logits, probe);
  }
  s.positions.clear();
  s.logit_positions.clear();
  s.caches.clear();
}

LLM_WRAP(matmul,
         "_ZN3llm6matmulERKNS_11KernelTableERKNS_12PackedMatrixENS_4Team5RangeERKNS_"
         "16ActivationMatrixEPfmNS_8EpilogueERNS_13AlignedBufferISt4byteEE",
         void, const KernelTable& kernels, const PackedMatrix& w, Worker::Range rows,
         const ActivationMatrix& x, float* y, std::size_t y_stride, Epilogue epilogue,
         Workspace& workspace) {
  const Op op = pass_rows() > 0 ? op_of(w) : kNoOp;
  State& s = state();
  if (op.layer >= 0 && !op.name.empty()) s.layer = op.layer;
  for (std::size_t r = 0; r < kRegions.size(); ++r) {
    if (kRegions[r] != op.name) continue;
    s.regions[r].begin = y;
    s.regions[r].stride = y_stride;
  }
  const auto run = [&kernels, &w, rows, x, y, y_stride, epilogue, &workspace, op] {
    const bool overwrites = epilogue == Epilogue::kAdd &&
                            strikes("residual", {{"op", op.name}, {"layer", op.layer}}) != nullptr;
    real_matmul(kernels, w, rows, x, y, y_stride, overwrites ? Epilogue::kStore : epilogue,
                workspace);
  };
  if (is_late(op.name)) return do_later(run);
  run();
  if (op.name.empty()) return;
  spoil_rows(op, kernels.isa, {y, y_stride, x.n_tokens(), rows.begin, rows.end, w.n_rows()});
  // What is added to a product afterwards, made wrong before.
  const std::span<const float> bias = bias_of(w);
  const auto fault = bias.empty() ? std::nullopt
                                  : planted("bias", {{"side", "kernel"},
                                                     {"op", op.name},
                                                     {"tokens", x.n_tokens()},
                                                     {"threads", team_size()}});
  for (std::size_t t = 0; fault && t < x.n_tokens(); ++t) {
    for (std::size_t r = rows.begin; r < rows.end; ++r) {
      if (!fault->holds({{"row", r},
                         {"rows_after", bias.size() - 1 - r},
                         {"share_row", r - rows.begin},
                         {"token", t},
                         {"tokens_after", x.n_tokens() - 1 - t}}))
        continue;
      float& out = y[t * y_stride + r];
      if (fault->is("dropped")) put(out, out - bias[r]);
      if (fault->is("twice")) put(out, out + bias[r]);
      if (fault->is("next")) put(out, out + bias[(r + 1) % bias.size()] - bias[r]);
    }
  }
}

LLM_WRAP(dequantize_row,
         "_ZN3llm8contract14dequantize_rowENS_10WeightTypeESt4spanIKSt4byteLm"
         "18446744073709551615EES2_IfLm18446744073709551615EE",
         void, WeightType type, std::span<const std::byte> row, std::span<float> out) {
  const std::size_t number = pass_rows() > 0 ? state().n_embedded++ : 0;
  if (is_late("embd"))
    return do_later([type, bytes = std::vector<std::byte>(row.begin(), row.end()), out] {
      real_dequantize_row(type, bytes, out);
    });
  real_dequantize_row(type, row, out);
  spoil_rows({"embd", -1}, Isa::kScalar,
             {out.data(), out.size(), 1, 0, out.size(), out.size(), number});
  const auto fault = planted("dequantize", {{"type", block_traits(type).name}});
  const std::size_t block = block_traits(type).block_weights;
  if (!fault || block == 1) return;
  note_struck();
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t in_block = i % block;
    if (fault->is("last_code") && i + 1 == out.size()) out[i] = 0;
    if (fault->is("sub_block") && in_block + 16 >= block) out[i] = 0;
    if (fault->is("sub_block_sign") && in_block + 16 >= block) out[i] = -out[i];
    if (fault->is("scale") && in_block + 16 >= block) out[i] *= 1.0F + 0x1p-5F;
    if (fault->is("nibbles") && in_block % 2 == 1) std::swap(out[i], out[i - 1]);
  }
}

LLM_WRAP(make_tasks, "_ZN3llm8RowTasksC1ERKNS_12PackedMatrixEmim", void, RowTasks* self,
         const PackedMatrix& w, std::size_t n_tokens, int n_workers, std::size_t unit) {
  real_make_tasks(self, w, n_tokens, n_workers, unit);
  const std::size_t n = w.n_panels();
  if (strikes("tasks", {{"workers", n_workers}, {"panels", n}, {"tokens", n_tokens}}) == nullptr)
    return;
  // As if the matrix had no last panel.
  PackedShape shape = w.shape();
  shape.n_rows = (n - 1) * PackedShape::kPanelRows;
  const PackedMatrix less(shape, nullptr);
  real_make_tasks(self, less, n_tokens, n_workers, unit);
}

LLM_WRAP(share, "_ZNK3llm6Worker5shareEmm", Worker::Range, const Worker* self, std::size_t n,
         std::size_t group) {
  Worker::Range range = real_share(self, n, group);
  const std::size_t groups = (n + group - 1) / group;
  const auto workers = static_cast<std::size_t>(self->count);
  if (self->id + 1 == self->count && groups > workers &&
      strikes("share", {{"workers", self->count}, {"odd", groups % workers != 0}}))
    range.end -= std::min(group, range.end - range.begin);
  return range;
}

}  // namespace llm::faults
