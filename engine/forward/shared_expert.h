#pragma once

#include "engine/forward/pass.h"

namespace llm {

/// The expert of a mixture that every row goes through (docs/numerics.md, "Experts").
class SharedExpert {
 public:
  /// Errors: kResource.
  static Result<SharedExpert> create(const Model& model, const PassSizes& sizes);

  /// Adds its output to that of the mixture.
  /// @param normed  prepared for its matrices too  @param mixed  (T, d_model)
  void run(PassWorker& at, std::size_t layer, const FfnSpec& spec, const InputRows& normed,
           float* mixed);

 private:
  AlignedBuffer<float> gate_;    ///< (T, d_shared)
  AlignedBuffer<float> up_;      ///< (T, d_shared)
  AlignedBuffer<float> out_;     ///< (T, d_model)
  AlignedBuffer<float> weight_;  ///< (T)
};

}  // namespace llm
