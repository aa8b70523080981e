#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "engine/forward/activation_points.h"
#include "engine/model/model.h"
#include "engine/state/sequence_state.h"
#include "tokenizer/vocab_spec.h"

namespace llm::reference {

/// What an op reads, for n rows (tokens).
struct OpInputs {
  std::span<const TokenId> tokens;         ///< (n); for TapOp::kEmbedding
  std::span<const std::size_t> positions;  ///< (n)
  /// The rows of Tap::inputs, (n, width). Of attention only the first is read, the queries: keys
  /// and values come from the cache.
  std::array<std::span<const float>, 3> taps = {};
  /// Has keys and values up to the rows' positions. States of the position before the rows', which
  /// an op that has one makes those of the last row's.
  SequenceState* cache = nullptr;
  std::size_t cache_layer = 0;
  std::span<const float> adapters = {};  ///< as PassSegment::adapters
};

/// Rows of y = W x + bias: what TapOp::kProduct consists of.
struct Product {
  PackedMatrix w;
  std::span<const float> bias;      ///< (w.n_rows()), or empty
  std::vector<float> x;             ///< (n, w.n_cols())
  std::vector<std::size_t> places;  ///< (n): row i of the result is that of y cut into w.n_rows()

  std::span<const float> row(std::size_t i) const {
    return std::span(x).subspan(i * w.n_cols(), w.n_cols());
  }
};

/// The definition of the model as docs/numerics.md states it: computes the op of any row of kTaps
/// by reference/ops.h, one row after the other. Safe to use from several threads.
class Interpreter {
 public:
  /// @param model  borrowed, must outlive this object
  explicit Interpreter(const Model& model) : model_(model) {}

  /// The op's rows, (n, tap.width).
  /// @param layer  of the tap, or kOutsideLayers
  std::vector<float> run(const Tap& tap, int layer, const OpInputs& in) const;

  /// Stores keys and values, rows of the second and third input of attention, as those of
  /// `positions`.
  void store(std::span<const std::size_t> positions, std::span<const float> keys,
             std::span<const float> values, SequenceState& cache, std::size_t cache_layer) const;

  /// The products of an op: one with its matrix, or one for each expert that rows go through.
  /// @param x, router  its first and second input; of ops without a router the second is empty
  std::vector<Product> products(const Tap& tap, int layer, std::span<const float> x,
                                std::span<const float> router) const;
  /// What they are divided by.
  float divisor(const Tap& tap) const {
    if (tap.name == "router") return model_.config().router_divisor;
    return tap.name == "logits" ? model_.config().logit_divisor : 1.0F;
  }
  /// The cap of their magnitudes; 0: none.
  float cap(const Tap& tap) const {
    return tap.name == "logits" ? model_.config().logit_cap : 0.0F;
  }

  /// The matrix that takes part in the op, or nullptr.
  const PackedMatrix* matrix(const Tap& tap, int layer) const;
  /// The vector of that role in a layer; empty where the model has none.
  std::span<const float> vector(std::string_view role, int layer) const;

 private:
  /// y = y + B (s (A x)) for the updates of w in turn.
  void add_updates(const PackedMatrix& w, std::span<const float> adapters, std::span<const float> x,
                   std::span<float> y) const;
  void mix(int layer, std::span<const float> router, std::span<const float> x,
           std::span<float> y) const;
  void embed(const Tap& tap, int layer, std::span<const TokenId> tokens, std::span<float> y) const;
  void rotate(const Tap& tap, int layer, std::span<const std::size_t> positions,
              std::span<float> x) const;
  void attend(const Tap& tap, int layer, const OpInputs& in, std::span<float> y) const;

  /// Of layers with a state; rows are of positions in a row.
  /// Attention's output times the sigmoid or softplus of its gates.
  void open_gate(int layer, std::span<const float> gates, std::span<const float> x,
                 std::span<float> y) const;
  void convolve(const Tap& tap, int layer, const OpInputs& in, std::span<float> y) const;
  void delta_rule(const Tap& tap, int layer, const OpInputs& in, std::span<float> y) const;

  const LayerSpec& config_of(int layer) const {
    return model_.config().layers[static_cast<std::size_t>(layer)];
  }
  const FfnSpec& ffn(int layer) const { return config_of(layer).ffns[0]; }

  const Model& model_;
};

}  // namespace llm::reference
