#pragma once

#include <cstddef>
#include <string_view>

#include "base/result.h"
#include "validate/reference/diff/limits.h"

namespace llm {

/// Parses a limits file:
///
///   {"format": "llmcheck-limits/1",
///    "limits": [{"probe": "*", "metric": "nmse", "limit": 1e-9, "source": "why"}, ...]}
///
/// Errors (kMalformed) name the rule's index and key; a limit is a finite number from 0 on.
Result<Limits> parse_limits(std::string_view json);

/// Equality of every bit that counts: max_abs <= 0.
Limits exact_limits();

}  // namespace llm
