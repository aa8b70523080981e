#ifndef LLM_ENGINE_FORWARD_FORWARD_H_
#define LLM_ENGINE_FORWARD_FORWARD_H_

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_team.h"
#include "engine/forward/kv_cache.h"
#include "engine/forward/probe.h"
#include "engine/forward/rope.h"
#include "engine/model/hyper_parameters.h"
#include "engine/model/weights.h"
#include "quant/kernels/matmul.h"
#include "tokenizer/vocab_spec.h"

namespace llm {

/// The Llama forward pass on all threads and the chosen instruction set: one parallel region a
/// pass, prefill with T > 1 tokens and decode with T = 1 being the same code. Equal, bit for bit,
/// to reference::Forward.
class Forward {
 public:
  /// Everything is borrowed and must outlive this object.
  /// @param max_batch  the most tokens of one run()
  /// @param context    positions of the cache it will run with
  /// Errors: kResource for the activations' memory.
  static Result<Forward> create(const HyperParameters& config, const ModelWeights& weights,
                                const Rope& rope, const KernelTable& kernels, Compute compute,
                                int n_threads, std::size_t max_batch, std::size_t context);

  /// Evaluates `tokens` at positions first_position, first_position + 1, ...; reads keys and values
  /// of earlier positions from `cache` and stores theirs.
  /// @param logits  (R, n_vocab), overwritten: logits of the last R tokens, R = logits.size() /
  /// n_vocab
  /// @param probe   may be nullptr
  /// @pre 1 <= tokens.size() <= max_batch; token ids are in the vocabulary; positions fit the cache
  void run(std::span<const TokenId> tokens, std::size_t first_position, KvCache& cache,
           std::span<float> logits, ProbeSink* probe);

 private:
  /// What one run() works on; T = tokens in the batch.
  struct Pass {
    std::span<const TokenId> tokens;
    std::size_t first_position;
    KvCache& cache;
    std::span<float> logits;
    ProbeSink* probe;
  };

  Forward(const HyperParameters& config, const ModelWeights& weights, const Rope& rope,
          const KernelTable& kernels, Compute compute)
      : config_(config), weights_(weights), rope_(rope), kernels_(kernels), compute_(compute) {}

  /// Memory for what products read: rows that workers prepare before a product.
  struct Rows {
    AlignedBuffer<float> normed;     ///< (n, d_model)
    AlignedBuffer<float> context;    ///< (n, n_heads * head_dim): attention's result
    AlignedBuffer<std::byte> input;  ///< the current product's right-hand side, n rows
    Status allocate(const HyperParameters& config, std::size_t n);
  };
  /// One row is prepared by each worker in memory of its own, which is cheaper than waiting for
  /// each other; of more, every worker prepares a share in memory that all read.
  Rows& rows_of(Worker worker, std::size_t n);
  static Worker::Range share_of_rows(Worker worker, std::size_t n);
  /// Returns when all n rows are prepared.
  static void wait_for_rows(Worker worker, std::size_t n);

  // Every function below is called by all workers of the region. Decode waits five times a layer:
  // after K and V are stored, after attention, attn_output, gate and up, and ffn_down.
  void embed(const Pass& pass, Worker worker);
  void run_attention(const Pass& pass, Worker worker, std::size_t layer);
  void run_ffn(const Pass& pass, Worker worker, std::size_t layer);
  void run_output(const Pass& pass, Worker worker);

  /// Rows::normed and the returned matrix = norm(rows [first, first + n) of x_), in w's format.
  ActivationMatrix norm_rows(Worker worker, std::span<const float> weight, const PackedMatrix& w,
                             std::size_t first, std::size_t n);
  /// The rows of `x`, (n, w.n_cols()), in w's format.
  ActivationMatrix load_rows(Worker worker, const float* x, const PackedMatrix& w, std::size_t n);
  /// `input`, or Rows::normed again when w wants another format.
  ActivationMatrix in_format_of(Worker worker, const PackedMatrix& w,
                                const ActivationMatrix& input);
  /// x_ = x_ + W input; the product itself goes to a tap.
  void add_product(const Pass& pass, Worker worker, const PackedMatrix& w,
                   const ActivationMatrix& input, int layer, std::string_view name);
  void rotate_and_store(const Pass& pass, Worker worker, std::size_t layer);
  void attend(const Pass& pass, Worker worker, std::size_t layer);
  void product(Worker worker, const PackedMatrix& w, const ActivationMatrix& input, float* y,
               Epilogue epilogue);
  ActivationFormat format_for(const PackedMatrix& w) const;
  void tap(const Pass& pass, Worker worker, int layer, std::string_view name, const float* values,
           std::size_t features, std::size_t first_token = 0) const;

  const HyperParameters& config_;
  const ModelWeights& weights_;
  const Rope& rope_;
  const KernelTable& kernels_;
  Compute compute_;
  int n_threads_ = 1;

  // Activations of the batch; every matrix is (T, features), row-major.
  AlignedBuffer<float> x_;        ///< residual stream, d_model
  AlignedBuffer<float> q_;        ///< n_heads * head_dim
  AlignedBuffer<float> k_;        ///< n_kv_heads * head_dim
  AlignedBuffer<float> v_;        ///< n_kv_heads * head_dim
  AlignedBuffer<float> gate_;     ///< d_ff
  AlignedBuffer<float> up_;       ///< d_ff
  AlignedBuffer<float> cos_;      ///< rope pairs
  AlignedBuffer<float> sin_;      ///< rope pairs
  AlignedBuffer<float> partial_;  ///< attention of decode: (chunk, head, 2 + head_dim)
  AlignedBuffer<float> output_;   ///< attn_out or ffn_out, d_model, for probes only
  Rows batch_rows_;

  /// Memory of one worker.
  struct Scratch {
    Rows rows;
    Workspace product;
    Workspace attention;
    AlignedBuffer<float> partial;  ///< attention of a block of tokens: (token, head, 2 + head_dim)
    AlignedBuffer<std::byte> row;  ///< one row of the embedding as in the file
  };
  std::vector<Scratch> scratch_;
};

}  // namespace llm

#endif  // LLM_ENGINE_FORWARD_FORWARD_H_
