#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "validate/provenance/receipt.h"

namespace llm {

/// Where two outputs part.
struct Parting {
  std::size_t token;              ///< of the output, from 0
  std::array<std::size_t, 2> at;  ///< its place in Receipt::tokens() of each
};

/// The first place at which two runs have different tokens, or one has none; nothing where the
/// outputs are equal. Tokens that one run was given as the end of its prompt, and the other one
/// generated, are the same. Of runs with different prompts, the outputs are compared.
std::optional<Parting> parting_of(const Receipt& a, const Receipt& b);

/// What a run saw before a token.
struct DrawnFrom {
  std::optional<TokenLogprob> chosen;  ///< the token that follows; none: the output ends there
  std::vector<TokenLogprob> top;       ///< most likely first
  std::vector<float> row;              ///< of logits
};

/// Evaluates the first `at` tokens of a receipt.
/// @param model  the receipt's, in its mode
/// @return nothing where the context has no position left
/// @pre 1 <= at <= receipt.tokens().size()
/// Errors: ReceiptTerms::of()'s; the engine's. Cost: a prefill.
Result<std::optional<DrawnFrom>> drawn_from(const std::shared_ptr<const Model>& model,
                                            const Receipt& receipt, std::size_t at,
                                            std::size_t n_top);

/// In which settings two receipts differ, each as "NAME: VALUE and VALUE"; and whether their models
/// and prompts do.
std::vector<std::string> different_settings(const Receipt& a, const Receipt& b);

}  // namespace llm
