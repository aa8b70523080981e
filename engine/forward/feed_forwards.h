#pragma once

#include <optional>
#include <utility>

#include "engine/forward/experts.h"
#include "engine/forward/feed_forward.h"

namespace llm {

/// The feed-forwards of the layers, with memory for the kinds that some layer has.
class FeedForwards {
 public:
  /// Errors: kResource.
  static Result<FeedForwards> create(const Model& model, const PassSizes& sizes) {
    FeedForwards part;
    for (const LayerSpec& layer : model.config().layers) {
      for (const FfnSpec& spec : layer.ffns) {
        if (spec.n_experts > 0 && !part.experts_) {
          LLM_TRY(Experts experts, Experts::create(model, sizes));
          part.experts_.emplace(std::move(experts));
        } else if (spec.n_experts == 0 && !part.dense_) {
          LLM_TRY(FeedForward dense, FeedForward::create(model, sizes));
          part.dense_.emplace(std::move(dense));
        }
      }
    }
    return part;
  }

  /// Those of a layer, in the order of its LayerSpec.
  void run(PassWorker& at, std::size_t layer) {
    for (const FfnSpec& spec : at.config().layers[layer].ffns) {
      if (spec.n_experts > 0) {
        experts_->run(at, layer, spec);
      } else {
        dense_->run(at, layer, spec);
      }
    }
  }

 private:
  std::optional<FeedForward> dense_;
  std::optional<Experts> experts_;
};

}  // namespace llm
