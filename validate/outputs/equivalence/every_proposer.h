#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/generation/speculation.h"

namespace llm {

/// Runs something without proposals and then with those of every kind: none, right and wrong ones
/// in every number, n-grams, and a draft of the model's own first layers; each of a fixed length,
/// so that time decides nothing.
/// @param run  called with null first; an error ends all
/// @param kv  of the draft. @param context  positions that the draft needs
Status with_every_proposer(
    const std::shared_ptr<const Model>& model, KvType kv, std::size_t context,
    const std::function<Status(Speculation* speculation, std::string_view proposer)>& run);

}  // namespace llm
