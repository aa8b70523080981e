#pragma once

#include <utility>
#include <variant>

#include "engine/forward/experts.h"
#include "engine/forward/feed_forward.h"

namespace llm {

/// The feed-forward of a model's layers, of whichever kind it is.
using FeedForwards = std::variant<FeedForward, Experts>;

/// That which the hyper-parameters choose. Errors: its own.
inline Result<FeedForwards> create_feed_forward(const Model& model, const PassSizes& sizes) {
  const auto create = [&]<typename Kind>() -> Result<FeedForwards> {
    LLM_TRY(Kind kind, Kind::create(model, sizes));
    return FeedForwards(std::move(kind));
  };
  if (model.config().n_experts > 0) return create.operator()<Experts>();
  return create.operator()<FeedForward>();
}

}  // namespace llm
