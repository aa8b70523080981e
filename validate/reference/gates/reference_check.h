#pragma once

#include "base/result.h"
#include "engine/model/hyper_parameters.h"
#include "validate/reference/dump/dump.h"

namespace llm {

/// Whether every tap of `reference` fits a model of `config`, before anything is computed from it:
/// tokens of its vocabulary, no more of them than its context has positions, rows of its widths.
/// The logits must be there, so that no reference passes by leaving out what it would be held to.
/// Taps of layers that the model does not have are left alone: two numbers of layers are a FAIL.
/// Errors: kMalformed, naming key, what was found and what the model needs; those of reading.
/// Cost: reads the dump once, a tap at a time.
Status check_reference(const Dump& reference, const HyperParameters& config);

}  // namespace llm
