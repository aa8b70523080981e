#ifndef LLM_VALIDATE_DIFF_LIMITS_FILE_H_
#define LLM_VALIDATE_DIFF_LIMITS_FILE_H_

#include <cstddef>
#include <string_view>

#include "base/result.h"
#include "engine/engine.h"
#include "quant/formats/activations.h"
#include "validate/diff/limits.h"

namespace llm {

/// Parses a limits file:
///
///   {"format": "llmcheck-limits/1",
///    "limits": [{"probe": "*", "metric": "nmse", "limit": 1e-9, "source": "why"}, ...]}
///
/// Errors (kMalformed) name the rule's index and key; a limit is a finite number from 0 on.
Result<Limits> parse_limits(std::string_view json);

/// The limits against an f64 or f32 reference on the same weights that hold when no file is given.
/// How they were found is in docs/tolerances.md.
/// @param activations  the coarsest format that a product of the model takes under Compute::kInt8
Limits default_limits(Compute compute, KvType kv, std::size_t n_layers,
                      ActivationFormat activations = ActivationFormat::kQ8_K);

/// Equality of every bit that counts: max_abs <= 0.
Limits exact_limits();

}  // namespace llm

#endif  // LLM_VALIDATE_DIFF_LIMITS_FILE_H_
