#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "engine/model/model.h"
#include "engine/model/tensor_roles.h"
#include "validate/report/report.h"

namespace llm {

// Parts of matrix_check.cpp.

/// How many products differ in a bit, and the first of them.
struct Mismatch {
  std::size_t count = 0;
  std::size_t row = 0;
  float actual = 0;
  float expected = 0;

  void look(std::size_t at_row, float a, float e) {
    if (std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(e)) return;
    if (count++ > 0) return;
    row = at_row;
    actual = a;
    expected = e;
  }
  /// Adds what another comparison found.
  void look_all(const Mismatch& other) {
    const std::size_t all = count + other.count;
    if (count == 0) *this = other;
    count = all;
  }
};

/// Where docs/numerics.md, "The order of a head", puts the file's row `row` of a tensor of `role`:
/// the inverse of file_row(), written by itself so that a fault there shows.
std::size_t packed_row(const HyperParameters& config, const TensorRole& role, std::size_t row);

/// Whether every vector of the model (norms, biases) is the file's, each element where the packed
/// order has it.
CheckResult check_vectors(const Model& model, const ModelTensors& tensors);

}  // namespace llm
