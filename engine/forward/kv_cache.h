#ifndef LLM_ENGINE_FORWARD_KV_CACHE_H_
#define LLM_ENGINE_FORWARD_KV_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "engine/forward/precision.h"
#include "engine/model/hyper_parameters.h"

namespace llm {

/// Keys and values of every position of one sequence, per layer and KV head, rounded to the cache's
/// type when stored and always read back from here.
///
/// Layout of one (layer, KV head), chosen so that attention needs no shuffles:
///   keys    [position / 16][head_dim][16]   16 neighbouring positions in lanes
///   values  [position][head_dim]
/// The memory of positions never stored is zero.
class KvCache {
 public:
  static constexpr std::size_t kLanes = 16;

  /// Bytes of a cache for `context` positions (rounded up to 16), or nothing on overflow.
  static std::optional<std::uint64_t> bytes_needed(const HyperParameters& config,
                                                   std::size_t context, KvType type);
  /// Errors: kResource with the bytes needed.
  static Result<KvCache> create(const HyperParameters& config, std::size_t context, KvType type);

  KvType type() const { return type_; }
  std::size_t context() const { return context_; }
  std::size_t element_bytes() const { return type_ == KvType::kF16 ? 2 : 4; }

  /// Rounds and stores rows [first_row, first_row + key.size()) of K and V at `position`; row r is
  /// dim r % head_dim of KV head r / head_dim. Different rows may be stored by different workers.
  /// @pre key.size() == value.size(), the rows exist, position < context()
  void store(std::size_t layer, std::size_t first_row, std::size_t position,
             std::span<const float> key, std::span<const float> value);

  /// One element, read back. For the reference; fast code uses keys() and values().
  float key(std::size_t layer, std::size_t head, std::size_t position, std::size_t d) const;
  float value(std::size_t layer, std::size_t head, std::size_t position, std::size_t d) const;

  /// First byte of the keys, or values, of (layer, head), in the layout above.
  const std::byte* keys(std::size_t layer, std::size_t head) const;
  const std::byte* values(std::size_t layer, std::size_t head) const;

 private:
  std::size_t head_bytes() const { return context_ * head_dim_ * element_bytes(); }
  std::byte* head_begin(std::size_t layer, std::size_t head, bool values) const;

  KvType type_ = KvType::kF16;
  std::size_t context_ = 0;
  std::size_t n_heads_ = 0;
  std::size_t head_dim_ = 0;
  AlignedBuffer<std::byte> data_;
};

}  // namespace llm

#endif  // LLM_ENGINE_FORWARD_KV_CACHE_H_
