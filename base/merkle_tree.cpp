#include "base/merkle_tree.h"

#include <array>

namespace llm {
namespace {

constexpr std::array kNode = {std::byte{1}};

Sha256Digest node_of(const Sha256Digest& left, const Sha256Digest& right) {
  Sha256 node;
  node.update(kNode);
  node.update(left);
  node.update(right);
  return node.digest();
}

/// A level of `leaves` becomes the next one.
void rise(std::vector<Sha256Digest>& leaves) {
  const std::size_t n = leaves.size();
  for (std::size_t i = 0; i + 1 < n; i += 2) leaves[i / 2] = node_of(leaves[i], leaves[i + 1]);
  if (n % 2 == 1) leaves[n / 2] = leaves[n - 1];
  leaves.resize((n + 1) / 2);
}

/// What makes a node of the next level, its j-th known one.
struct Pair {
  std::size_t k;  ///< the first of it that is known, among those of its level
  std::size_t j;
  std::size_t sibling;  ///< its place
  enum { kKnown, kMissing, kNone } which;

  bool is_missing() const { return which == kMissing; }
};

/// The pairs of known ones in a level of n; `known` becomes those of the next level.
template <typename Visit>
void rise(std::size_t n, std::vector<std::size_t>& known, Visit visit) {
  std::size_t size = 0;
  for (std::size_t k = 0; k < known.size(); ++k) {
    const std::size_t sibling = known[k] ^ 1U;
    const bool both = sibling > known[k] && k + 1 < known.size() && known[k + 1] == sibling;
    visit(Pair{k, size, sibling, both ? Pair::kKnown : sibling < n ? Pair::kMissing : Pair::kNone});
    known[size++] = sibling / 2;
    if (both) ++k;
  }
  known.resize(size);
}

}  // namespace

Sha256Digest merkle_root(std::vector<Sha256Digest> leaves) {
  while (leaves.size() > 1) rise(leaves);
  return leaves.front();
}

std::vector<Sha256Digest> merkle_proof(std::vector<Sha256Digest> leaves,
                                       std::vector<std::size_t> known) {
  std::vector<Sha256Digest> proof;
  for (; leaves.size() > 1; rise(leaves)) {
    rise(leaves.size(), known, [&](const Pair& pair) {
      if (pair.is_missing()) proof.push_back(leaves[pair.sibling]);
    });
  }
  return proof;
}

std::size_t merkle_proof_size(std::size_t n_leaves, std::vector<std::size_t> known) {
  std::size_t size = 0;
  for (std::size_t n = n_leaves; n > 1; n = (n + 1) / 2)
    rise(n, known, [&](const Pair& pair) { size += pair.is_missing() ? 1 : 0; });
  return size;
}

Sha256Digest merkle_root_by_proof(std::size_t n_leaves, std::vector<std::size_t> known,
                                  std::vector<Sha256Digest> leaves,
                                  std::span<const Sha256Digest> proof) {
  for (std::size_t n = n_leaves; n > 1; n = (n + 1) / 2) {
    rise(n, known, [&](const Pair& pair) {
      const Sha256Digest own = leaves[pair.k];
      if (pair.which == Pair::kNone) {
        leaves[pair.j] = own;
        return;
      }
      const Sha256Digest other = pair.is_missing() ? proof.front() : leaves[pair.k + 1];
      if (pair.is_missing()) proof = proof.subspan(1);
      leaves[pair.j] = pair.sibling % 2 == 0 ? node_of(other, own) : node_of(own, other);
    });
  }
  return leaves.front();
}

}  // namespace llm
