#pragma once

#include <cstddef>

namespace llm::contract {

/// Counts the changes of docs/numerics.md that change a bit, so that stored keys and values of
/// another version are not taken for ours.
inline constexpr unsigned kContractVersion = 1;

// The sizes of docs/numerics.md. The definition and every fast path take them from here; another
// value gives other bits.

/// Virtual lanes of a sum whose order is not given otherwise.
inline constexpr std::size_t kLanes = 16;
/// Keys of one attention chunk, by absolute position.
inline constexpr std::size_t kAttentionChunk = 256;
/// Activations that share a scale: with the 32-weight types.
inline constexpr std::size_t kBlock = 32;
/// Activations that share a scale: with the K-quants and Q8_K.
inline constexpr std::size_t kSuperBlock = 256;
/// Largest magnitude of an activation's code.
inline constexpr int kMaxActivationCode = 127;
/// Largest weight of a key, rounded for the sum of q8 values.
inline constexpr int kMaxAttentionWeight = 32767;

// Sizes that folders share but that no bit depends on.

/// Rows of a packed panel, keys of a packed KV panel: one per lane.
inline constexpr std::size_t kPanelRows = kLanes;
/// Most panels of a register tile: the step of shares of a batch, and its accumulators in the
/// workspace.
inline constexpr std::size_t kMaxTilePanels = 2;
/// Rows (query heads of tokens) that attention scores at once.
inline constexpr std::size_t kAttentionRows = 8;

}  // namespace llm::contract
