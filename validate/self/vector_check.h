#pragma once

#include <cstddef>

#include "engine/model/model.h"
#include "engine/model/tensor_roles.h"
#include "validate/report/report.h"

namespace llm {

/// Where docs/numerics.md, "The order of a head", puts the file's row `row` of a tensor of `role`:
/// the inverse of file_row(), written by itself so that a fault there shows.
std::size_t packed_row(const HyperParameters& config, const TensorRole& role, std::size_t row);

/// Whether every vector of the model (norms, biases) is the file's, each element where the packed
/// order has it.
CheckResult check_vectors(const Model& model, const ModelTensors& tensors);

}  // namespace llm
