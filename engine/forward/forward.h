#ifndef LLM_ENGINE_FORWARD_FORWARD_H_
#define LLM_ENGINE_FORWARD_FORWARD_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_team.h"
#include "engine/forward/kv_cache.h"
#include "engine/forward/probe.h"
#include "engine/forward/profile.h"
#include "engine/forward/team_size.h"
#include "engine/model/model.h"
#include "quant/kernels/matmul.h"
#include "tokenizer/vocab_spec.h"

namespace llm {

/// What a pass computes of one sequence: `tokens` at positions first_position, first_position + 1,
/// ..., and the logits of the last n_logits of them.
struct PassSegment {
  std::span<const TokenId> tokens;
  std::size_t first_position;
  KvCache* cache;  ///< has the keys and values of earlier positions; theirs are stored
  std::size_t n_logits;
};

/// The Llama forward pass on the model's threads and the chosen instruction set: one parallel
/// region per pass over the weights. A pass takes the rows (tokens) of any number of sequences;
/// prefill, decode and both at once are the same code. Equal, bit for bit, to reference::Forward on
/// each sequence by itself.
class Forward {
 public:
  /// @param model      borrowed, must outlive this object
  /// @param max_batch  the most rows of one run()
  /// @param context    positions of the longest sequence
  /// @param kv         type of the sequences' caches
  /// Errors: kResource for the activations' memory.
  static Result<Forward> create(const Model& model, std::size_t max_batch, std::size_t context,
                                KvType kv);

  /// @param logits  (R, n_vocab), overwritten, the rows of the segments in turn; R = sum of
  /// n_logits
  /// @param probe   may be nullptr; else there is one segment
  /// @pre no segment is empty, all sequences differ, at most max_batch rows in all; token ids are
  /// in the vocabulary; positions are reserved in the caches
  void run(std::span<const PassSegment> segments, std::span<float> logits, ProbeSink* probe);

  /// Where the times of the passes to come are added; nullptr: they are not taken.
  void set_profile(PassProfile* profile) { profile_ = profile; }
  /// Adds what packing the weights took before a pass of `n_rows` rows.
  void profile_packing(std::chrono::nanoseconds time, std::size_t n_rows);

 private:
  /// One row of the batch: a token of a sequence.
  struct Row {
    const PassSegment* segment;
    TokenId token;
    std::size_t position;
  };

  /// Neighbouring rows of one sequence, at most kAttendRows, that attend together.
  struct Block {
    const PassSegment* segment;
    std::size_t first_row;
    std::size_t n_rows;
  };

  /// What one run() works on; T = its rows.
  struct Pass {
    std::span<const Row> rows;
    std::span<const Block> blocks;
    std::span<const std::size_t> logit_rows;  ///< rows whose logits are wanted
    std::span<float> logits;
    ProbeSink* probe;
  };

  static constexpr std::size_t kAttendRows = 32;

  explicit Forward(const Model& model);

  /// Memory for what products read: rows that workers prepare before a product.
  struct Inputs {
    AlignedBuffer<float> normed;     ///< (n, d_model)
    AlignedBuffer<float> context;    ///< (n, n_heads * head_dim): attention's result
    AlignedBuffer<std::byte> q8_k;   ///< n rows, the widest product's, as that format
    AlignedBuffer<std::byte> q8_32;  ///< likewise
    Status allocate(const HyperParameters& config, std::size_t n);
  };
  /// One row is prepared by each worker in memory of its own, which is cheaper than waiting for
  /// each other; of more, every worker prepares some in memory that all read.
  Inputs& inputs_of(Worker worker, std::size_t n);

  /// n rows as products read them: in f32, and in each format that was asked for.
  struct InputRows {
    Inputs* memory;
    float* f32;  ///< (n, features)
    std::size_t n;
    std::size_t features;
    ActivationMatrix as(ActivationFormat format) const;
  };
  using Readers = std::initializer_list<const PackedMatrix*>;

  std::span<const std::size_t> all_rows(const Pass& pass) const;
  Pass plan(std::span<const PassSegment> segments, std::span<float> logits, ProbeSink* probe);
  /// Every worker calls them first and last.
  void begin(Worker worker, OpClock::Time started);
  void end(Worker worker, OpClock::Time started);
  OpProfile& profile_of(std::size_t n_rows) const {
    return n_rows == 1 ? profile_->one_row : profile_->batch;
  }
  void add_to_profile(OpClock::Time started, OpClock::Time now, std::size_t n_workers);

  // Every function below is called by all workers of the region; `op` is what its time belongs to.
  // Decode waits five times per layer: after K and V are stored, after attention, attn_output, gate
  // and up, and ffn_down.
  void embed(const Pass& pass, Worker worker);
  void run_attention(const Pass& pass, Worker worker, std::size_t layer);
  void run_ffn(const Pass& pass, Worker worker, std::size_t layer);
  void run_output(const Pass& pass, Worker worker);

  /// Inputs::normed = norm(`rows` of x_), for those who read it.
  InputRows norm_rows(Worker worker, std::span<const float> weight,
                      std::span<const std::size_t> rows, Readers readers);
  /// The n rows of `x` for those who read them.
  InputRows load_rows(Worker worker, PassOp op, float* x, std::size_t n, std::size_t features,
                      Readers readers);
  /// Stores every row in the formats that the readers want, once make_row(i) has made its f32
  /// values. Returns when all are there.
  template <typename MakeRow>
  void prepare_rows(Worker worker, PassOp op, const InputRows& input, Readers readers,
                    MakeRow make_row);
  /// Runs tasks until none is left, and returns when all are done.
  template <typename Task>
  void run_tasks(Worker worker, std::size_t n, Task task) {
    worker.take_tasks(n, task);
    wait(worker);
  }
  void wait(Worker worker);
  OpClock& clock(Worker worker) { return scratch_[static_cast<std::size_t>(worker.id)].clock; }

  /// x_ = x_ + W input; the product itself goes to a tap.
  void add_product(const Pass& pass, Worker worker, PassOp op, const PackedMatrix& w,
                   const InputRows& input, int layer, std::string_view name);
  /// The tasks of a product with n inputs.
  RowTasks tasks_of(const PackedMatrix& w, std::size_t n, Worker worker,
                    std::size_t unit = 1) const;
  /// Rows of y = W input, or of y = y + W input.
  void product(Worker worker, PassOp op, const PackedMatrix& w, TaskRows rows,
               const InputRows& input, float* y, Epilogue epilogue);
  /// y = y + bias in those rows of n tokens; no bias is empty.
  static void add_bias(const PackedMatrix& w, std::span<const float> bias, Worker::Range rows,
                       std::size_t n, float* y);
  ActivationFormat format_for(const PackedMatrix& w) const;
  void tap(const Pass& pass, Worker worker, int layer, std::string_view name, float* values,
           std::size_t features, std::size_t first_row = 0);

  // attention.cpp
  /// q, K and V: products with biases, head norms, RoPE, K and V into the caches.
  void project_heads(const Pass& pass, Worker worker, std::size_t layer, const InputRows& input);
  /// Head norms, where the model has them, and RoPE, in `rows` (whole heads) of q.
  void rotate_queries(const Pass& pass, Worker worker, std::size_t layer, Worker::Range rows);
  /// The same with K; K and V then go into the caches.
  void rotate_and_store(const Pass& pass, Worker worker, std::size_t layer, Worker::Range rows);
  void norm_heads(std::span<const float> weight, Worker::Range rows, float* x) const;
  void attend(const Pass& pass, Worker worker, std::size_t layer);
  void attend_blocks(const Pass& pass, Worker worker, std::size_t layer);
  void attend_one_row(const Row& row, Worker worker, std::size_t layer);
  /// Runs the attention kernel for `n_rows` rows from `first_row` on, all query heads of a KV head
  /// and chunks [chunk_begin, chunk_end).
  void attend_heads(const Row& first, std::size_t first_row, std::size_t n_rows,
                    std::size_t kv_head, std::size_t chunk_begin, std::size_t chunk_end,
                    float* partial, Worker worker, std::size_t layer);

  const HyperParameters& config_;
  const ModelWeights& weights_;
  const Rope& rope_;
  const KernelTable& kernels_;
  Compute compute_;
  TeamSize team_size_;
  std::size_t task_bytes_ = RowTasks::kTaskBytes;  ///< of this pass
  PassProfile* profile_ = nullptr;

  // The plan of the current pass.
  std::vector<Row> rows_;
  std::vector<Block> blocks_;
  std::vector<std::size_t> logit_rows_;
  std::vector<std::size_t> all_rows_;  ///< 0, 1, 2, ...

  // Activations of the batch; every matrix is (T, features), row-major.
  AlignedBuffer<float> x_;        ///< residual stream, d_model
  AlignedBuffer<float> q_;        ///< n_heads * head_dim
  AlignedBuffer<float> k_;        ///< n_kv_heads * head_dim
  AlignedBuffer<float> v_;        ///< n_kv_heads * head_dim
  AlignedBuffer<float> gate_;     ///< d_ff
  AlignedBuffer<float> up_;       ///< d_ff
  AlignedBuffer<float> cos_;      ///< rope pairs
  AlignedBuffer<float> sin_;      ///< rope pairs
  AlignedBuffer<float> partial_;  ///< attention of one row: (chunk, head, 2 + head_dim)
  AlignedBuffer<float> output_;   ///< attn_out or ffn_out, d_model, for probes only
  Inputs batch_inputs_;

  /// Memory of one worker.
  struct Scratch {
    OpClock clock;
    std::chrono::nanoseconds own_time{0};  ///< of this worker when the pass began
    bool stopped = false;                  ///< whether the system gave its CPU to others for long
    Inputs inputs;
    Workspace product;
    Workspace attention;
    AlignedBuffer<float> partial;  ///< attention of a block: (row, head, 2 + head_dim)
    AlignedBuffer<std::byte> row;  ///< one row of the embedding as in the file
  };
  std::vector<Scratch> scratch_;
};

}  // namespace llm

#endif  // LLM_ENGINE_FORWARD_FORWARD_H_
