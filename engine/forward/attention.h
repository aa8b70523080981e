#pragma once

#include <span>
#include <vector>

#include "engine/forward/pass.h"

namespace llm {

/// The part of a layer that looks at other positions: heads of q, K and V, RoPE, the cache,
/// attention and its output, added to the residual. Products run over all rows, attention by
/// sequence.
class Attention {
 public:
  /// Errors: kResource.
  static Result<Attention> create(const Model& model, const PassSizes& sizes);

  /// Before the pass, by one thread.
  void plan(std::span<const PassSegment> segments);
  /// RoPE's angles of row t; all rows need them before the first layer.
  void set_angles(std::size_t t, std::size_t position);

  /// Decode waits three times: after K and V are stored, after attention, and after attn_output.
  void run(PassWorker& at, std::size_t layer);

 private:
  /// Neighbouring rows of one sequence, at most kAttendRows, that attend together.
  struct Block {
    std::size_t first_row;
    std::size_t n_rows;
  };
  static constexpr std::size_t kAttendRows = 32;

  /// Memory of one worker.
  struct Scratch {
    Workspace attention;
    AlignedBuffer<float> partial;  ///< attention of a block: (row, head, 2 + head_dim)
    AlignedBuffer<float> sink;     ///< of a head, as a chunk: {sink, 1, 0 ...}, 2 + head_dim
    AlignedBuffer<float> context;  ///< of one row, n_heads * head_dim
    AlignedBuffer<float> gated;    ///< likewise, where a layer has an output gate
  };

  explicit Attention(const Model& model)
      : config_(model.config()), ropes_(model.ropes()), weights_(model.weights()) {}

  const AttentionSpec& spec(std::size_t layer) const { return config_.attention(layer); }
  Scratch& own(const PassWorker& at) { return scratch_[at.id()]; }

  /// q, K and V: products with biases, head norms, RoPE, K and V into the caches.
  void project_heads(PassWorker& at, std::size_t layer, const InputRows& input);
  /// Head norms, where the model has them, RoPE and the scale of queries, in `rows` (whole heads)
  /// of q.
  void rotate_queries(PassWorker& at, std::size_t layer, Worker::Range rows);
  /// The same with K; K and V, normed where the layer says so, then go into the caches.
  void rotate_and_store(PassWorker& at, std::size_t layer, Worker::Range rows);
  /// Norms of whole rows of q and K, where the layer has such. Waits.
  void norm_whole_rows(PassWorker& at, std::size_t layer);
  /// Head norms and RoPE, in those elements of row t.
  void rotate(const PassWorker& at, std::size_t layer, std::size_t t, std::span<const float> norm,
              Worker::Range rows, float* x) const;
  /// The layer whose keys and values it reads, of the trunk's sequence where there is a trunk.
  std::size_t keys_layer(std::size_t layer) const {
    return config_.has_trunk() ? *spec(layer).kv_of_layer : layer;
  }
  /// The first chunk of keys that a row at `position` attends to.
  std::size_t first_chunk(std::size_t layer, std::size_t position) const;
  /// The context of every row, (T, n_heads * head_dim); of one row, every worker's own.
  float* attend(PassWorker& at, std::size_t layer);
  /// The context of every row times the sigmoid or softplus of its gate, (T, n_heads * head_dim);
  /// of one row every worker's own. May be where `context` was.
  float* gate(PassWorker& at, std::size_t layer, float* context);
  void attend_blocks(PassWorker& at, std::size_t layer);
  void attend_one_row(PassWorker& at, std::size_t layer);
  /// The context of a head of which all chunks are merged in `sum`, which its sink then joins.
  void finish_head(const PassWorker& at, std::size_t layer, std::size_t head, float* sum,
                   float* context);
  /// Runs the attention kernel for the rows of a block, all query heads of a KV head and chunks
  /// [chunk_begin, chunk_end).
  void attend_heads(PassWorker& at, std::size_t layer, Block block, std::size_t kv_head,
                    std::size_t chunk_begin, std::size_t chunk_end, float* partial);

  const HyperParameters& config_;
  const std::vector<Rope>& ropes_;
  const ModelWeights& weights_;

  std::vector<Block> blocks_;
  std::size_t max_batch_ = 0;
  std::size_t most_pairs_ = 0;  ///< that a rope turns
  // Every matrix is (T, features of the layer), row-major, with memory for the widest layer.
  AlignedBuffer<float> q_;        ///< n_heads * head_dim
  AlignedBuffer<float> k_;        ///< n_kv_heads * head_dim
  AlignedBuffer<float> v_;        ///< n_kv_heads * head_dim
  AlignedBuffer<float> gate_;     ///< n_heads * head_dim, where a layer has an output gate
  AlignedBuffer<float> context_;  ///< n_heads * head_dim
  AlignedBuffer<float> ones_;     ///< (head_dim of the widest): weights of the norm of v
  AlignedBuffer<float> cos_;      ///< (ropes, max_batch, most_pairs_)
  AlignedBuffer<float> sin_;      ///< likewise
  AlignedBuffer<float> q_scale_;  ///< (ropes, max_batch): of queries after rotation
  AlignedBuffer<float> partial_;  ///< attention of one row: (chunk, head, 2 + head_dim)
  std::vector<Scratch> scratch_;
};

}  // namespace llm
