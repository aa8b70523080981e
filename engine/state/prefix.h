#pragma once

#include <span>

#include "base/sha256.h"
#include "tokenizer/vocab_spec.h"

namespace llm {

/// Stands for all tokens up to a position: a hash of them and of all else that their keys, values
/// and states depend on. Equal on every machine.
using Prefix = Sha256Digest;

/// What stands for the tokens of `parent` and, behind them, `tokens`. A position has one prefix
/// where each caller goes from one page's end to the next.
inline Prefix prefix_after(const Prefix& parent, std::span<const TokenId> tokens) {
  Sha256 hash;
  hash.update(parent);
  hash.update(std::as_bytes(tokens));
  return hash.digest();
}

}  // namespace llm
