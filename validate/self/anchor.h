#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/result.h"
#include "validate/self/text_path.h"

namespace llm {

/// Positions [begin, end) of a text. `begin` is a multiple of KvPool::kPagePositions.
struct Window {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// The definition's logits in `windows`: what every path must give. A window that begins at 0 owes
/// nothing to the fast paths; a later one reads the keys and values of earlier pages as the fast
/// prefill stored them, and computes all else by itself, so it costs its own tokens only.
/// Errors: as evaluate().
Result<LogitTable> by_definition(const ModelPointer& model, KvType kv,
                                 std::span<const TokenId> tokens, std::span<const Window> windows);

/// Where prefill leaves the definition within a window: the first activation, in the order of the
/// data flow, that differs, with layer, tap, position and what computes it, in words.
/// Errors: as evaluate(). Cost: the window by the definition, and every activation of it in memory.
Result<std::string> first_wrong_op(const ModelPointer& model, KvType kv,
                                   std::span<const TokenId> tokens, const Window& window);

}  // namespace llm
