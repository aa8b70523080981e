#pragma once

#include <span>

#include "engine/model/hyper_parameters.h"
#include "engine/model/precision.h"
#include "validate/reference/locate/ideal_ops.h"

namespace llm {

/// Attention in f64 on q, K and V of the taps q_rope, k_rope and v, rounded as a cache of type `kv`
/// has them; with q8, q and the weights of keys as well. `q` holds the tokens `rows` alone.
/// `window` is LayerSpec's; `sinks`, of each head, may be empty.
/// @pre finite inputs
IdealOutput ideal_attention(const HyperParameters& config, KvType kv, const TapMatrix& q,
                            const TapMatrix& k, const TapMatrix& v, std::size_t window,
                            TokenRows rows, std::span<const float> sinks = {});

}  // namespace llm
