#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "validate/reference/diff/limits.h"
#include "validate/reference/diff/metrics.h"
#include "validate/reference/dump/dump.h"

namespace llm {

enum class TapVerdict {
  kPass,
  kFail,     ///< a metric exceeds its limit, or values or shapes are unusable
  kMissing,  ///< expected and not there; fails the comparison like kFail
  kShown,    ///< a figure to know, not judged
  kAbsent,   ///< the reference's metadata declares, with a reason, that it cannot give this tap
};

/// "PASS", "FAIL", "MISSING", "shown", "absent".
std::string_view verdict_name(TapVerdict verdict);

/// One tap of one layer, over all tokens.
struct LayerDiffRow {
  int layer = 0;  ///< ProbeSink::kGlobal outside the layers
  std::string tap;
  TapError error = {};             ///< meaningful for kPass and kFail with an empty note
  std::vector<Limit> limits = {};  ///< those that applied
  TapVerdict verdict = TapVerdict::kPass;
  std::string note = {};  ///< why, where the figures do not say: shapes, NaN counts, reasons

  bool fails() const { return verdict == TapVerdict::kFail || verdict == TapVerdict::kMissing; }
};

/// The outcome of comparing two dumps.
struct LayerDiff {
  /// What makes the dumps incomparable (tokens, positions, tokenizer). Not empty: FAIL.
  std::vector<std::string> problems;
  /// Worth knowing, no failure (another model file, unknown arrays).
  std::vector<std::string> remarks;
  /// In topological order: embd, each layer's taps, result_norm, logits.
  std::vector<LayerDiffRow> rows;
  /// Index in rows of the first that fails().
  std::optional<std::size_t> first_failing;

  bool passed() const { return problems.empty() && !rows.empty() && !first_failing; }
};

/// What computes a tap from the ones before it, with the tensor that takes part, if any:
/// "matrix product with blk.3.attn_q.weight", "RoPE on q". Where a tap is the first to fail, its
/// own inputs agreed, so this is where to look.
std::string tap_origin(int layer, std::string_view tap);

/// Compares every tap the reference has, and every tap the format promises, in the order of the
/// data flow. A tap that the reference has and `actual` lacks is kMissing; so is one that the
/// reference lacks without declaring it in taps_absent. Taps of the layout kRopeHeads are brought
/// to one order of features when the dumps' qk_layout differ.
///
/// Figures only: rows are kShown, but for what no figure describes (shapes, NaN, missing taps).
/// Errors: those of reading a dump (a damaged file); a difference is never an Error.
/// Cost: holds one tap of both dumps at a time.
Result<LayerDiff> diff_layers(const Dump& actual, const Dump& reference);

/// Judges the rows that are kShown. A tap without any rule fails.
void apply_limits(LayerDiff& diff, const Limits& limits);

/// Both.
Result<LayerDiff> diff_layers(const Dump& actual, const Dump& reference, const Limits& limits);

/// Reorders every head of a [rows, n_heads * head_dim] matrix from HF's halves to GGUF's pairs:
/// interleaved[2 i + j] = half[j * rope_dim / 2 + i] for the leading rope_dim features; the rest
/// stay. @pre rope_dim is even and <= head_dim, head_dim divides features
void half_to_interleaved(TapMatrix& matrix, std::size_t head_dim, std::size_t rope_dim);

}  // namespace llm
