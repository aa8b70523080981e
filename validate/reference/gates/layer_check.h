#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/model/hyper_parameters.h"
#include "validate/reference/diff/limits.h"
#include "validate/reference/dump/dump.h"
#include "validate/reference/fault_localization/locate_finding.h"

namespace llm {

/// How a mode computes: activations and keys and values.
struct ComputeMode {
  Compute compute;
  KvType kv;
};

/// The modes in which a model can be held against `reference`: f32 and int8 when it computed in
/// full precision, else the one it computed in.
/// @param int8_kv  the cache of the int8 run, where the reference leaves it open
std::vector<ComputeMode> modes_for(const DumpMeta& reference, KvType int8_kv = KvType::kF16);

struct LayerCheckOptions {
  std::string model_sha256;
  /// Limits on the free run's taps, against the reference; nullptr: those that follow from the
  /// model's own drift, and none on what rounded activations cost.
  const Limits* limits = nullptr;
  /// Multiplications of one pass over the ops by the definition; at least kFewestRows tokens are
  /// taken, and a note says how many.
  std::uint64_t budget = std::uint64_t{1} << 32;
  Progress progress;  ///< may be empty

  static constexpr std::size_t kFewestRows = 4;
};

/// Holds a run of `model` against a reference dump of the same tokens, in one mode, tap by tap
/// (docs/tolerances.md derives the limits):
///
///   bits   every op of the run equals the definition's on the run's own inputs, bit for bit
///   ops    every op of the definition, on the reference's inputs, gives the reference's output;
///          one that rounds its inputs, where the reference does not, that of f64 on rounded inputs
///   run    under Compute::kF32: errors that add up stay within what this model makes of rounding
///   price  under Compute::kInt8: what rounded activations cost; not judged
///
/// Where something fails, the section says which op is at fault and how (locate()).
/// @param model  under mode.compute
/// @pre check_positions()
/// Errors: kMalformed naming a tap whose shape is not the model's; those of reading dumps;
/// kResource. Cost: up to four evaluations of the tokens in plain loops (two in f64), and six by
/// the fast path.
Result<std::vector<DiffSection>> check_layers(const std::shared_ptr<const Model>& model,
                                              ComputeMode mode, const Dump& reference,
                                              const LayerCheckOptions& options);

/// Whether any of `sections` judged the reference, and not only the run by itself ("-bits").
bool judges_reference(std::span<const DiffSection> sections);

/// Whether the reference's positions are 0, 1, 2, ... Errors: kUnsupported.
Status check_positions(const Dump& reference);

/// "f32", "int8": how sections are named.
std::string mode_name(ComputeMode mode);

/// Whether every tap of `reference` fits a model of `config`, before anything is computed from it:
/// tokens of its vocabulary, no more of them than its context has positions, rows of its widths.
/// The logits must be there, so that no reference passes by leaving out what it would be held to.
/// Taps of layers that the model does not have are left alone: two numbers of layers are a FAIL.
/// Errors: kMalformed, naming key, what was found and what the model needs; those of reading.
/// Cost: reads the dump once, a tap at a time.
Status check_reference(const Dump& reference, const HyperParameters& config);

}  // namespace llm
