#pragma once

#include <memory>
#include <optional>

#include "base/result.h"
#include "validate/text/stages/stages.h"

namespace llm {

/// What the greedy run of the text stage gave.
struct StageText {
  bool passed = false;
  std::size_t agreed = 0;  ///< leading tokens that are the reference's
  std::string words;       ///< how many agreed; the first that did not, with both choices
};

/// Generates after the reference's prompt as llmrun does with --temp 0. Where the choices differ
/// although the reference's logits of both are within twice `noise`, they are a tie, and what
/// follows is not compared. Nothing when the reference has no logits.
/// @param noise  the largest difference of a logit from the reference's
/// Errors: those of generate(), and of reading the dump.
Result<std::optional<StageText>> check_text(const std::shared_ptr<const Model>& model, KvType kv,
                                            const Dump& reference, double noise);

}  // namespace llm
