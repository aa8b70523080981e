#pragma once

#include <cstring>
#include <string>
#include <string_view>

#include "tests/support/tiny_gguf.h"
#include "tokenizer/vocab_spec.h"

namespace llm::test {

/// The number of weights that a tensor's dims say.
inline std::size_t weight_count(const TinyGguf::Tensor& tensor) {
  std::size_t n = 1;
  for (const std::uint64_t dim : tensor.dims) n *= dim;
  return n;
}

/// Replaces a tensor by one of F32 with n equal weights.
inline void fill_f32(TinyGguf::Tensor& tensor, float value) {
  const std::size_t n = weight_count(tensor);
  tensor.type = static_cast<std::uint32_t>(WeightType::kF32);
  tensor.data.clear();
  for (std::size_t i = 0; i < n; ++i) tensor.data += encoded(value);
}

/// Makes every weight of a tensor finite but so large that its first product overflows.
inline void make_huge(TinyGguf& model, std::string_view name) {
  fill_f32(model.tensor(name), 3e38F);
}

/// Makes `token` alone overflow, in the first layer's q: its embedding points along the last
/// column, where others have nothing and where attn_q is huge.
inline void make_token_overflow(TinyGguf& model, TokenId token) {
  TinyGguf::Tensor& embd = model.tensor("token_embd.weight");
  TinyGguf::Tensor& q = model.tensor("blk.0.attn_q.weight");
  const std::size_t n_cols = embd.dims[0];
  const auto set = [](TinyGguf::Tensor& tensor, std::size_t index, float value) {
    std::memcpy(tensor.data.data() + index * sizeof(float), &value, sizeof(value));
  };
  const auto randomize = [](TinyGguf::Tensor& tensor, std::uint64_t seed) {
    tensor.type = static_cast<std::uint32_t>(WeightType::kF32);
    tensor.data = random_weights(WeightType::kF32, tensor.dims[1], tensor.dims[0], 0.3F, seed);
  };
  randomize(embd, 11);
  randomize(q, 12);
  for (std::size_t row = 0; row < embd.dims[1]; ++row) {
    const bool guilty = row == static_cast<std::size_t>(token);
    set(embd, row * n_cols + n_cols - 1, guilty ? 100.0F : 0.0F);
  }
  for (std::size_t row = 0; row < q.dims[1]; ++row) set(q, row * n_cols + n_cols - 1, 3e38F);
}

/// Makes every weight denormal in its file format: the scales of quantized blocks are the smallest
/// halves, F16 weights denormal halves, F32 matrices denormal floats. Codes stay random.
/// @param norms_too  else the norms keep their weights near 1
inline void make_denormal(TinyGguf& model, bool norms_too) {
  for (TinyGguf::Tensor& tensor : model.tensors) {
    const auto type = static_cast<WeightType>(tensor.type);
    if (tensor.dims.size() == 1 && !norms_too) continue;
    if (type == WeightType::kF32 || tensor.name == "output.weight") {
      const std::size_t n = weight_count(tensor);
      tensor.type = static_cast<std::uint32_t>(WeightType::kF32);
      tensor.data.clear();
      for (std::size_t i = 0; i < n; ++i) {
        tensor.data += encoded((i % 7 < 3 ? -1e-40F : 1e-40F) * static_cast<float>(i % 5 + 1));
      }
      continue;
    }
    const BlockTraits& traits = block_traits(type);
    for (std::size_t at = 0; at < tensor.data.size(); at += traits.block_bytes) {
      const auto bits = static_cast<std::uint16_t>(at / traits.block_bytes % 3 + 1);
      std::memcpy(tensor.data.data() + at, &bits, sizeof(bits));
      if (type == WeightType::kQ4_K) std::memcpy(tensor.data.data() + at + 2, &bits, sizeof(bits));
    }
  }
}

}  // namespace llm::test
