#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "engine/forward/reference/interpreter.h"
#include "engine/model/model.h"
#include "engine/state/sequence_state.h"
#include "quant/kernels/matmul.h"
#include "validate/provenance/run_rows.h"

namespace llm {

/// Computes rows of a run, each alone, from rows that are given: products and attention by the
/// model's kernels, whose bits are the definition's, the rest by the definition. A matrix is read
/// once for all rows that are a product with it, and one that no row needs is not read.
class RowRecompute {
 public:
  /// @param kv      how attention reads its keys and values
  /// @param tokens  of all positions, in the vocabulary
  /// @param table   borrowed, like the model
  RowRecompute(const Model& model, KvType kv, std::span<const TokenId> tokens,
               const RowTable& table);

  /// The values of `rows`, ascending; `inputs` has those that they are computed from, whatever
  /// they are. Errors: kResource.
  Result<RowValues> make(std::vector<std::size_t> rows, const RowValues& inputs) const;

 private:
  /// Rows of one column.
  struct Group {
    std::span<const std::size_t> rows;
    std::span<float> y;  ///< (rows, width)
  };
  /// A product, and the values that its rows are of.
  struct Task {
    reference::Product product;
    float divisor;
    float cap;
    std::span<float> y;
    std::vector<float> result = {};  ///< (places, w.n_rows()), which workers fill in parts
  };
  /// Memory of one worker.
  struct Scratch {
    AlignedBuffer<std::byte> activations;
    Workspace workspace;
    AlignedBuffer<float> partial;
  };

  std::vector<float> gather(std::span<const std::size_t> rows, std::size_t i,
                            const RowValues& inputs) const;
  void multiply(Task& task, Worker::Range rows, Scratch& scratch) const;
  void attend(const Group& group, const RowValues& inputs, SequenceState& cache,
              Scratch& scratch) const;
  void interpret(const Group& group, const RowValues& inputs) const;
  /// Ops with a state: of all positions that the rows read, from a state of zeros.
  void interpret_in_turn(const Group& group, const RowValues& inputs, SequenceState& cache) const;
  ActivationFormat format_of(const PackedMatrix& w) const;
  Result<Scratch> allocate(std::span<const Task> products) const;

  const Model& model_;
  KvType kv_;
  std::span<const TokenId> tokens_;
  const RowTable& table_;
  reference::Interpreter definition_;
};

}  // namespace llm
