#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/forward/reference/interpreter.h"
#include "engine/model/model.h"
#include "quant/formats/activations.h"
#include "validate/reference/dump/dump.h"

namespace llm {

/// Tokens of a dump by their index; empty: all of them.
using TokenRows = std::span<const std::size_t>;

/// The rows of `matrix` that are asked for, in that order.
TapMatrix select_rows(TapMatrix matrix, TokenRows rows);

/// A tap of `dump`, q and k in the engine's order of features (interleaved pairs) whatever the
/// dump's own. Nothing when the dump lacks the tap or does not say enough to reorder it.
/// Errors: those of Dump::tap; kMalformed naming the tap and both shapes when it is not the
/// model's.
Result<std::optional<TapMatrix>> engine_order_tap(const Dump& dump, int layer, std::string_view tap,
                                                  const HyperParameters& config);

/// Computes single ops of the forward pass by the definition (reference::Interpreter) on given
/// inputs. Safe to use from several threads.
class Replay {
 public:
  /// @param kv  how attention stores its keys and values
  Replay(std::shared_ptr<const Model> model, KvType kv);

  /// What the op that makes (layer, tap) gives on the taps in `inputs`, for the tokens `rows`.
  /// Nothing when one of them is not there. @pre the dump's positions are 0, 1, 2, ...
  /// Errors: those of engine_order_tap(); kResource.
  Result<std::optional<TapMatrix>> run(const Dump& inputs, int layer, std::string_view tap,
                                       TokenRows rows = {}) const;

  /// The matrix that takes part in the op, or nullptr.
  const PackedMatrix* matrix(int layer, std::string_view tap) const;
  /// Its type's name; empty for ops without one.
  std::string weight_type(int layer, std::string_view tap) const;
  /// The format of the activations it is multiplied with; nothing for ops that are no product.
  std::optional<ActivationFormat> product_format(int layer, std::string_view tap) const;
  /// The products of an op, by the router's logits of `inputs`, if there is one.
  /// @param x  the op's first input, for the tokens `rows` of `inputs`
  /// Nothing when the router's logits are not there. Errors: those of engine_order_tap().
  Result<std::optional<std::vector<reference::Product>>> products(const Dump& inputs, int layer,
                                                                  const Tap& tap,
                                                                  const TapMatrix& x,
                                                                  TokenRows rows) const;
  const reference::Interpreter& definition() const { return definition_; }
  const HyperParameters& config() const { return model_->config(); }
  const std::shared_ptr<const Model>& model() const { return model_; }
  KvType kv() const { return kv_; }

 private:
  std::shared_ptr<const Model> model_;
  reference::Interpreter definition_;
  KvType kv_;
};

}  // namespace llm
