#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>

#include "base/cpu_features.h"
#include "engine/model/model.h"
#include "engine/state/sequence_state.h"
#include "tests/fault_injection/fault.h"

/// What the fast forward pass of this process is at, known from the pointers that its kernels get:
/// weights name an op and its layer, its output the rows that the next op works on.
namespace llm::faults {

/// An op of the pass, by its tap's name.
struct Op {
  std::string_view name;
  int layer = 0;
};
inline constexpr Op kNoOp = {};

/// The op of a matrix, or of a vector that norms; kNoOp for others.
Op op_of(const PackedMatrix& matrix);
Op op_of(const float* norm_weight);
/// The bias of a matrix; empty where it has none.
std::span<const float> bias_of(const PackedMatrix& matrix);

/// Rows of the pass that runs; 0: none does.
std::size_t pass_rows();
/// Workers of the region; 1 outside one.
int team_size();
/// The caches of the segments of the pass.
std::span<SequenceState* const> pass_caches();

/// Makes rows of an op's output wrong before the next op reads them: site "forward". `values` are
/// features [begin, end) of `n` rows, `stride` apart, the first of them row `first`.
struct Rows {
  float* values;  ///< feature 0 of the first row
  std::size_t stride;
  std::size_t n;
  std::size_t begin;
  std::size_t end;
  std::size_t features;
  std::size_t first = 0;
};
void spoil_rows(Op op, Isa isa, const Rows& rows);
/// The same for elements [begin, end) of one row, x being feature 0, of an op that works in place
/// on the output of `made_by`, a product; kNoOp: of the one whose output x is in, if it is a
/// product's.
void spoil_in_place(std::string_view name, Isa isa, float* x, std::size_t begin, std::size_t end,
                    std::string_view made_by);

/// A fault "late:op=NAME": whether this worker does the op only after the next barrier, when others
/// have gone on. @return false: do it now
bool is_late(std::string_view op);
void do_later(std::function<void()> work);

}  // namespace llm::faults
