#ifndef LLM_TOOLS_LLMSYNTH_SYNTHETIC_MODEL_H_
#define LLM_TOOLS_LLMSYNTH_SYNTHETIC_MODEL_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/gguf/gguf_writer.h"
#include "tools/llmquant/recipe.h"

namespace llm {

/// The shape of a made-up Llama. Weights are seeded noise of a trained model's size: a synthetic
/// model runs as fast as a real one of its shape, and says nothing worth reading.
struct SyntheticShape {
  std::string_view name;
  std::uint64_t d_model = 0;
  std::uint64_t d_ff = 0;
  std::uint64_t n_layers = 0;
  std::uint64_t n_heads = 0;
  std::uint64_t n_kv_heads = 0;
  std::uint64_t head_dim = 0;
  std::uint64_t n_vocab = 0;  ///< at least 400: specials, bytes and single characters
  std::uint64_t context = 0;
  bool tied_output = false;
};

/// "tinyllama" (TinyLlama-1.1B's exact shape), "tinyllama-2l" (two layers of it) and small odd
/// ones: "odd80", "odd96" (head_dim 80 and 96, rows that are no multiple of 16), "mqa" (one KV
/// head), "tied"; or nothing.
std::optional<SyntheticShape> find_synthetic_shape(std::string_view name);
/// The names above, for messages.
std::string synthetic_shape_names();

struct SyntheticOptions {
  SyntheticShape shape;
  const Recipe* recipe = nullptr;  ///< as llmquant's TYPE; rows that do not fit get its fallback
  std::uint64_t seed = 1;
  int threads = 1;  ///< never changes a byte
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

/// Writes the model front to back. Equal options give equal bytes.
/// Cost: memory of one tensor in its type; time of quantizing every weight once.
Status write_synthetic_model(const SyntheticOptions& options, const ByteSink& sink);

}  // namespace llm

#endif  // LLM_TOOLS_LLMSYNTH_SYNTHETIC_MODEL_H_
