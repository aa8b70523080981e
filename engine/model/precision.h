#ifndef LLM_ENGINE_MODEL_PRECISION_H_
#define LLM_ENGINE_MODEL_PRECISION_H_

namespace llm {

/// How matrix products are computed (docs/numerics.md).
enum class Compute {
  kInt8,  ///< activations quantized to int8 blocks; integer sums
  kF32,   ///< weights dequantized, activations f32
};

/// How keys and values are stored in the cache.
enum class KvType { kF16, kF32 };

}  // namespace llm

#endif  // LLM_ENGINE_MODEL_PRECISION_H_
