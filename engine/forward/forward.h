#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/forward/attention.h"
#include "engine/forward/delta_net.h"
#include "engine/forward/feed_forwards.h"
#include "engine/forward/layer_inputs.h"
#include "engine/forward/next_token.h"
#include "engine/forward/output.h"
#include "engine/forward/pass.h"
#include "engine/forward/short_conv.h"

namespace llm {

/// The forward pass on the model's threads and the chosen instruction set: one parallel region per
/// pass over the weights. A pass takes the rows (tokens) of any number of sequences; prefill,
/// decode and both at once are the same code. Equals, bit for bit, reference::Forward on each
/// sequence alone.
///
/// It is a loop over parts. A part owns its memory (create()); its run() computes it in steps of
/// PassWorker, which also send its taps.
class Forward {
 public:
  /// @param model      borrowed, must outlive this object
  /// @param max_batch  the most rows of one run()
  /// @param context    positions of the longest sequence
  /// @param kv         type of the sequences' caches
  /// Errors: kResource for the activations' memory.
  static Result<Forward> create(const Model& model, std::size_t max_batch, std::size_t context,
                                KvType kv);

  /// @param rows  overwritten: logits, (R, n_vocab), of the segments in turn, R = sum of n_logits
  /// of those that want logits; after them the rows of the final norm, (S, d_model), of the
  /// segments that want some, in turn
  /// @param probe   may be nullptr; else there is one segment
  /// @pre no segment is empty, all sequences differ, at most max_batch rows in all; token ids are
  /// in the vocabulary; positions are reserved in the caches
  void run(std::span<const PassSegment> segments, std::span<float> rows, ProbeSink* probe);

  /// Where the times of later passes are added; nullptr: no times are measured.
  void set_profile(PassProfile* profile) { pass_.set_profile(profile); }
  /// A function that changes keys and values in later passes; nullptr: none.
  void set_kv_filter(KvFilter filter) { pass_.set_kv_filter(filter); }
  /// Adds the time of packing weights before a pass of `n_rows` rows.
  void profile_packing(std::chrono::nanoseconds time, std::size_t n_rows) {
    pass_.profile_packing(time, n_rows);
  }

 private:
  Forward(const Model& model, Pass pass, NextTokenInput next_token, Attention attention,
          DeltaNet delta_net, ShortConv short_conv, FeedForwards feed_forwards,
          LayerInputs layer_inputs);
  /// The part that computes a mixer of this kind (LayerSpec::mixer): an overload for each.
  void run_mixer(PassWorker& at, std::size_t layer, const AttentionSpec&) {
    attention_.run(at, layer);
  }
  void run_mixer(PassWorker& at, std::size_t layer, const DeltaNetSpec& spec) {
    delta_net_.run(at, layer, spec);
  }
  void run_mixer(PassWorker& at, std::size_t layer, const ShortConvSpec& spec) {
    short_conv_.run(at, layer, spec);
  }
  /// Rows of the embedding, and values that depend only on the position.
  void embed(PassWorker& at);

  std::size_t n_layers_;
  Pass pass_;
  NextTokenInput next_token_;
  Attention attention_;
  DeltaNet delta_net_;
  ShortConv short_conv_;
  FeedForwards feed_forwards_;
  LayerInputs layer_inputs_;
  Output output_;
  std::vector<AlignedBuffer<std::byte>> embedding_rows_;  ///< of each worker: one, as in the file
};

}  // namespace llm
