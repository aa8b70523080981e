#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "engine/forward/probe.h"
#include "engine/forward/reference/interpreter.h"
#include "engine/model/model.h"
#include "engine/state/sequence_state.h"
#include "tokenizer/vocab_spec.h"

namespace llm::reference {

/// The forward pass by the definition: every tap of the table in turn, on one thread.
class Forward {
 public:
  /// @param model  borrowed, must outlive this object
  explicit Forward(const Model& model) : config_(model.config()), interpreter_(model) {}

  /// Evaluates `tokens` at positions first_position, first_position + 1, ...; reads keys and values
  /// of earlier positions from `cache` and stores theirs.
  /// @param adapters  as PassSegment::adapters
  /// @param rows  (R, width), overwritten: those of `wanted` of the last R tokens, R = rows.size()
  /// / width
  /// @param wanted  a tap behind the layers, the last that is computed: "logits" or "result_norm"
  /// @param probe   may be nullptr
  /// @pre token ids are in the vocabulary, positions are reserved in the cache
  void run(std::span<const TokenId> tokens, std::size_t first_position, SequenceState& cache,
           std::span<const float> adapters, std::span<float> rows, std::string_view wanted,
           ProbeSink* probe) const;

 private:
  const HyperParameters& config_;
  Interpreter interpreter_;
};

}  // namespace llm::reference
