#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/sha256.h"

namespace llm {

// Merkle trees as in RFC 6962: SHA-256(0x01 | left | right) over two neighbours of a level; the
// last of an odd number stays as it is.

/// The root over `leaves`. @pre !leaves.empty()
Sha256Digest merkle_root(std::vector<Sha256Digest> leaves);

/// The nodes that are missing to compute the root from the leaves `known`: level by level from the
/// leaves, ascending in each.
/// @param known  ascending, at least one
std::vector<Sha256Digest> merkle_proof(std::vector<Sha256Digest> leaves,
                                       std::vector<std::size_t> known);

/// How many nodes that is, of a tree of n_leaves. Cost: O(known * log(n_leaves)).
std::size_t merkle_proof_size(std::size_t n_leaves, std::vector<std::size_t> known);

/// The root that leaves and missing nodes give.
/// @param leaves  those of `known`  @pre proof.size() == merkle_proof_size(n_leaves, known)
Sha256Digest merkle_root_by_proof(std::size_t n_leaves, std::vector<std::size_t> known,
                                  std::vector<Sha256Digest> leaves,
                                  std::span<const Sha256Digest> proof);

}  // namespace llm
