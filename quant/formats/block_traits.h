#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace llm {

/// How weights are stored. The values are GGUF's tensor type ids.
/// Source: the GGUF specification (ggml docs/gguf.md, enum ggml_type); ids 4, 5 and 31-33 were
/// removed there.
enum class WeightType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
  kQ1_0 = 41,
  kQ2_0 = 42,
};

/// What is known of a weight type without looking at data.
struct BlockTraits {
  WeightType type;
  std::string_view name;      ///< as in llmquant and reports: "Q4_K"
  std::size_t block_weights;  ///< consecutive weights of a row that share one block
  std::size_t block_bytes;    ///< bytes of that block on disk
};

/// The traits of every supported type, in ascending id.
std::span<const BlockTraits> all_block_traits();
/// The traits of `type`. @pre `type` is one of the enumerators.
const BlockTraits& block_traits(WeightType type);

/// The type with GGUF id `id`, or nothing when this engine does not read it.
std::optional<WeightType> weight_type_from_id(std::uint32_t id);
/// The type called `name` (case-insensitive), or nothing.
std::optional<WeightType> weight_type_from_name(std::string_view name);

/// A text as a parameter of templates.
template <std::size_t kSize>
struct FixedText {
  char text[kSize];
  // NOLINTNEXTLINE(google-explicit-constructor): a literal is one
  consteval FixedText(const char (&literal)[kSize]) { std::copy_n(literal, kSize, text); }
};

/// What every block struct states of its format.
template <WeightType kOwnType, FixedText kText, std::size_t kOwnWeights, std::size_t kOwnBytes>
struct BlockFormat {
  static constexpr WeightType kType = kOwnType;
  static constexpr std::string_view kName = kText.text;
  static constexpr std::size_t kWeights = kOwnWeights;  ///< of a block
  static constexpr std::size_t kBytes = kOwnBytes;      ///< of a block on disk
};

/// Bytes of one row of `n_cols` weights. @pre n_cols is a multiple of the type's block_weights.
std::size_t row_bytes(WeightType type, std::size_t n_cols);

}  // namespace llm
