#pragma once

#include <span>
#include <string>

#include "tools/llmquant/convert.h"
#include "tools/llmquant/plan.h"

namespace llm {

/// The table of a finished run: one line a tensor with type, size, NMSE and largest error, then
/// totals and bits per weight. Tensors that were copied have no error.
/// @param errors  one a tensor of the plan, or none at all (dry run): the columns are left out
std::string report_table(std::span<const TensorPlan> plan, std::span<const ConversionError> errors);

}  // namespace llm
