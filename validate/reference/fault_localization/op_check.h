#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "validate/reference/diff/layer_diff.h"
#include "validate/reference/dump/dump.h"
#include "validate/reference/fault_localization/op_replay.h"

namespace llm {

/// One op by itself: what it gave on certain inputs, and what it should have given.
struct OpOutput {
  TapMatrix actual;
  TapMatrix expected;
  std::vector<double> row_limits;  ///< NMSE that each row may have; 0: equal bits
  std::string why;                 ///< where the limits come from
};

/// How the reference kept keys and values; f32 where it rounded none.
KvType cache_of(const DumpMeta& reference);

/// Whether the reference rounded activations, keys and values where the engine does in this mode
/// (the emulating oracle, or another run of this engine).
bool rounds_alike(const DumpMeta& reference, Compute compute, KvType kv);

/// The definition's op on the reference's inputs, so that no error travels. It should give the
/// reference's output; an op that rounds its inputs, where the reference does not: what
/// ideal_output() says. Limits follow from f32 arithmetic and constants of no model
/// (docs/tolerances.md). Nothing when a tap is not there.
/// Errors: those of engine_order_tap(); kResource.
Result<std::optional<OpOutput>> op_on_reference(const Replay& replay, const Dump& reference,
                                                int layer, const Tap& tap, TokenRows rows = {});

/// The run's output, which must equal bit for bit what the definition's op gives on the run's own
/// inputs. Nothing when a tap is not there.
Result<std::optional<OpOutput>> op_of_run(const Replay& replay, const Dump& run, int layer,
                                          const Tap& tap, TokenRows rows = {});

/// Equal bits, where every NaN equals any other: the contract says nothing of its payload.
bool same_bits(const TapMatrix& a, const TapMatrix& b);

/// The output judged by its limits, as a row of a table: figures of all rows, value and limit of
/// the row that is furthest out. NaN and Inf fail, also where both sides have them.
LayerDiffRow judge(int layer, const Tap& tap, const OpOutput& output);

}  // namespace llm
