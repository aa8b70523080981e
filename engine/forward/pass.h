#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_team.h"
#include "engine/forward/probe.h"
#include "engine/forward/profile.h"
#include "engine/forward/team_size.h"
#include "engine/model/model.h"
#include "engine/state/sequence_state.h"
#include "quant/kernels/matmul.h"
#include "tokenizer/vocab_spec.h"

namespace llm {

/// What a pass computes of one sequence: `tokens` at positions first_position, first_position + 1,
/// ..., and the rows of the last n_logits of them: logits, or what those are a product of.
struct PassSegment {
  std::span<const TokenId> tokens;
  std::size_t first_position;
  SequenceState* state;  ///< of earlier positions; theirs is added
  std::size_t n_logits;
  bool normed = false;      ///< rows of the final norm are wanted, and no logits
  bool all_normed = false;  ///< rows of the final norm of all tokens are wanted as well
  /// Where the first layer reads next tokens (LayerSpec::reads_next_token): what it reads beside
  /// each token, a row of d_model.
  const float* hidden = nullptr;
  /// Of a model with a trunk (HyperParameters::d_trunk): the trunk's sequence, in place of `state`;
  /// the tokens are those behind the positions, up to which its keys are read, and a row of
  /// `hidden` has d_trunk values.
  const SequenceState* trunk = nullptr;
  /// The scale of each of Model::adapters(), 0: not used; empty: none is.
  std::span<const float> adapters = {};

  bool wants_normed(std::size_t t) const {
    return all_normed || (normed && t + n_logits >= tokens.size());
  }
};

/// One row of the batch: a token of a sequence.
struct PassRow {
  const PassSegment* segment;
  TokenId token;
  std::size_t position;
};

/// What every part allocates its memory for.
struct PassSizes {
  std::size_t max_batch;  ///< rows of one pass
  std::size_t context;    ///< positions of the longest sequence
  KvType kv;              ///< of the sequences' caches
};

/// `count` floats of activations. Errors: kResource.
Result<AlignedBuffer<float>> allocate_activations(std::size_t count);

/// Memory for what products read: rows that workers prepare before a product.
struct InputMemory {
  AlignedBuffer<float> normed;     ///< (n, d_model)
  AlignedBuffer<std::byte> q8_k;   ///< n rows, the widest product's, as that format
  AlignedBuffer<std::byte> q8_32;  ///< likewise
  AlignedBuffer<float> low_rank;   ///< s (A x) of adapters: n rows of each update in turn

  /// @param width  of a row of `normed`; 0: d_model
  /// @param low_rank  floats of a row of it
  static Result<InputMemory> allocate(const HyperParameters& config, std::size_t n,
                                      std::size_t width = 0, std::size_t low_rank = 0);
};

/// n rows as products read them: in f32, and in each format that was asked for.
struct InputRows {
  InputMemory* memory;
  float* f32;  ///< (n, features)
  std::size_t n;
  std::size_t features;
  std::size_t first = 0;  ///< rows of that many features in the memory before these
  /// Those of the pass; empty: no adapter updates their products.
  std::span<const std::size_t> pass_rows = {};

  ActivationMatrix as(ActivationFormat format) const;
};

/// The current pass, and what its parts share: the plan of its rows, the residual stream, memory
/// for products' inputs, and the workers with their clocks. T = rows of the pass.
class Pass {
 public:
  /// @param model  borrowed, must outlive this object
  /// Errors: kResource for the activations' memory.
  static Result<Pass> create(const Model& model, const PassSizes& sizes);

  /// See Forward::run().
  void plan(std::span<const PassSegment> segments, std::span<float> rows, ProbeSink* probe);
  /// Runs `body` on every worker of the pass, which plan() has described.
  void run(const std::function<void(class PassWorker&)>& body);

  void set_profile(PassProfile* profile) { profile_ = profile; }
  void profile_packing(std::chrono::nanoseconds time, std::size_t n_rows);
  void set_kv_filter(KvFilter filter) { kv_filter_ = filter; }

 private:
  friend class PassWorker;

  explicit Pass(const Model& model);
  OpProfile& profile_of(std::size_t n_rows) const {
    return n_rows == 1 ? profile_->one_row : profile_->batch;
  }
  void add_to_profile(OpClock::Time started, OpClock::Time now, std::size_t n_workers);

  /// Memory of one worker.
  struct Scratch {
    OpClock clock;
    bool stopped = false;  ///< whether the system gave its CPU to others for long
    InputMemory inputs;
    Workspace product;
  };

  const HyperParameters& config_;
  const ModelWeights& weights_;
  std::span<const std::shared_ptr<const Adapter>> adapters_;
  const KernelTable& kernels_;
  Compute compute_;
  TeamSize team_size_;
  PassProfile* profile_ = nullptr;
  KvFilter kv_filter_ = nullptr;

  std::vector<PassRow> rows_;
  std::vector<std::size_t> wanted_rows_;  ///< rows whose logits are wanted, then the normed ones
  std::size_t n_logit_rows_ = 0;          ///< the first of them
  std::vector<std::size_t> all_rows_;     ///< 0, 1, 2, ...
  std::span<float> wanted_;
  ProbeSink* probe_ = nullptr;
  bool uses_adapters_ = false;  ///< some row does

  AlignedBuffer<float> x_;       ///< residual stream, (T, d_model)
  AlignedBuffer<float> output_;  ///< what is added to it, (T, d_model), for probes and norms
  InputMemory batch_inputs_;
  std::vector<Scratch> scratch_;
};

/// One worker in a pass: the steps of which parts are made. All workers of the region call the same
/// ones in the same order; a step that says so waits for the others.
class PassWorker {
 public:
  /// The matrices that an input is prepared for.
  using Readers = std::initializer_list<const PackedMatrix*>;

  PassWorker(Pass& pass, Worker worker)
      : pass_(pass), worker_(worker), own_(pass.scratch_[static_cast<std::size_t>(worker.id)]) {}

  std::size_t id() const { return static_cast<std::size_t>(worker_.id); }
  const HyperParameters& config() const { return pass_.config_; }
  const ModelWeights& weights() const { return pass_.weights_; }
  const KernelTable& kernels() const { return pass_.kernels_; }
  KvFilter kv_filter() const { return pass_.kv_filter_; }
  std::span<const PassRow> rows() const { return pass_.rows_; }
  /// Rows that Forward::run() gives, those of logits first, and where they belong.
  std::span<const std::size_t> wanted_rows() const { return pass_.wanted_rows_; }
  std::size_t n_logit_rows() const { return pass_.n_logit_rows_; }
  std::span<float> wanted() const { return pass_.wanted_; }
  bool has_probe() const { return pass_.probe_ != nullptr; }
  /// Row t of the residual stream.
  std::span<float> residual(std::size_t t) const {
    return pass_.x_.span().subspan(t * config().d_model, config().d_model);
  }

  /// norm(residual(row)) of every row, or of `rows`, for those who read it; without a weight the
  /// rows as they are. Of one row every worker makes its own, which is cheaper than waiting; else
  /// returns when all are there.
  InputRows norm_rows(std::span<const float> weight, Readers readers) {
    if (weight.empty()) return load_rows(PassOp::kNorm, pass_.x_.data(), config().d_model, readers);
    return norm_rows(weight, std::span(pass_.all_rows_).first(rows().size()), readers);
  }
  InputRows norm_rows(std::span<const float> weight, std::span<const std::size_t> rows,
                      Readers readers);
  /// The rows of x, (T, features), for those who read it; waits as norm_rows() does. Its time is
  /// that of `op`.
  InputRows load_rows(PassOp op, float* x, std::size_t features, Readers readers);

  /// Stores row i of `input`, whose f32 values are there, in the formats that the readers want.
  void store_row(const InputRows& input, std::size_t i, Readers readers);
  /// Makes row i of `to` what row `from_i` of `from` is, in every format that the readers want.
  void copy_row(const InputRows& to, std::size_t i, const InputRows& from, std::size_t from_i,
                Readers readers);

  /// The tasks of a product with n inputs; `unit` rows stay together.
  RowTasks tasks_of(const PackedMatrix& w, std::size_t n, std::size_t unit = 1) const {
    return {w, n, worker_.count, unit};
  }
  /// Rows of y = W input + bias.
  /// @param bias  (w.n_rows()); may be empty
  void product(PassOp op, const PackedMatrix& w, std::span<const float> bias, Worker::Range rows,
               const InputRows& input, float* y);
  /// Rows of y = W input, or of y = y + W input.
  void product(PassOp op, const PackedMatrix& w, Worker::Range rows, const InputRows& input,
               float* y, Epilogue epilogue = Epilogue::kStore);
  /// The taps of a product that is added, and of its norm.
  struct AddedTaps {
    std::string_view product;
    std::string_view norm;
  };
  /// residual = residual + W input, or + the norm of W input where there is one, times
  /// HyperParameters::residual_scale. Waits.
  /// @param norm  weights; may be empty
  /// @param bias  added to W input; may be empty
  void add_product(PassOp op, const PackedMatrix& w, const InputRows& input,
                   std::span<const float> norm, std::size_t layer, AddedTaps taps,
                   std::span<const float> bias = {});

  /// Every row of the residual stream times `factor`. Waits.
  void scale_residual(float factor);

  /// Runs tasks until none is left, and returns when all are done.
  template <typename Task>
  void run_tasks(std::size_t n, Task task) {
    worker_.take_tasks(n, task);
    wait();
  }
  void wait() {
    worker_.barrier();
    lap(PassOp::kWait);
  }
  void lap(PassOp op) { own_.clock.lap(op); }

  /// Sends a tap of a layer, (T, features), to the probe, if there is one; then waits.
  void tap(std::size_t layer, std::string_view name, float* values, std::size_t features) {
    send(static_cast<int>(layer), name, values, features, 0);
  }
  void tap_residual(std::size_t layer, std::string_view name) {
    tap(layer, name, pass_.x_.data(), config().d_model);
  }
  /// A tap outside the layers, of the rows from first_row on.
  void tap_outside(std::string_view name, float* values, std::size_t features,
                   std::size_t first_row) {
    send(ProbeSink::kGlobal, name, values, features, first_row);
  }

 private:
  friend class Pass;

  void send(int layer, std::string_view name, float* values, std::size_t features,
            std::size_t first_row);
  InputMemory& inputs_of(std::size_t n) { return n == 1 ? own_.inputs : pass_.batch_inputs_; }
  ActivationFormat format_for(const PackedMatrix& w) const {
    return pass_.compute_ == Compute::kInt8 ? activation_format(w.type()) : ActivationFormat::kF32;
  }
  bool is_read(ActivationFormat format, Readers readers) const;
  bool has_updates(const PackedMatrix& w) const;
  /// Calls visit(update, scale, begin, end, low_rank) for each update of w and each run of rows
  /// [begin, end) among [first, last) of `input` that use it at that scale, in the adapters' order.
  /// low_rank is where s (A x) of those rows is, (end - begin, rank).
  template <typename Visit>
  void each_update(const PackedMatrix& w, const InputRows& input, std::size_t first,
                   std::size_t last, Visit visit) const;
  /// s (A x) of rows [first, last) of `input`, whose f32 values are there, for the readers'
  /// updates.
  void reduce_rows(const InputRows& input, std::size_t first, std::size_t last, Readers readers);
  /// y = y + B (s (A x)) in these rows of w, for its updates.
  void add_updates(const PackedMatrix& w, Worker::Range rows, const InputRows& input, float* y);
  /// These rows of y = W x, or y = y + W x, of n rows of x, all in f32.
  void multiply(const PackedMatrix& w, Worker::Range rows, float* x, std::size_t n, float* y,
                Epilogue epilogue);
  /// Stores every row in the formats that the readers want, once make_row(i) has made its f32
  /// values.
  template <typename MakeRow>
  void prepare_rows(PassOp op, const InputRows& input, Readers readers, MakeRow make_row);

  Pass& pass_;
  Worker worker_;
  Pass::Scratch& own_;
};

}  // namespace llm
