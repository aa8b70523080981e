#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "validate/reference/dump/dump.h"
#include "validate/reference/fault_localization/locate_finding.h"
#include "validate/reference/fault_localization/op_check.h"
#include "validate/reference/fault_localization/op_replay.h"

namespace llm {

/// Contradictions between a reference's metadata and the model as the engine read it, by keys of
/// the GGUF: layers, head and RoPE dims, eps, RoPE's base, scales and caps. What the metadata does
/// not state is not compared.
std::vector<std::string> check_hyper_parameters(const DumpMeta& reference,
                                                const HyperParameters& config);

/// Runs the definition's quantizer on every activation of the reference that enters an int8
/// product (quantization_fault()). One line for each op whose input it gets wrong.
Result<std::vector<std::string>> check_quantizer(const Replay& replay, const Dump& reference);

/// What locate() looks into.
struct LocateInput {
  const Dump& run;        ///< of the fast path
  const Dump& reference;  ///< from elsewhere
  /// Ops to look into, in the order of the data flow; empty: all.
  std::vector<InLayer<Tap>> ops = {};
  TokenRows rows = {};  ///< tokens to look at; empty: all
};

/// Shadow replay: runs ops by the definition on the reference's inputs and on the run's own, so
/// that an op is named only for an error of its own, never for one that came in through its inputs.
/// Says of each whether the definition or the fast path alone is at fault, how the output is wrong
/// (locate_signature.h) and for which tokens. Errors: those of reading dumps; kResource. Cost: up
/// to two evaluations of the ops in plain loops, and one in f64.
Result<Location> locate(const Replay& replay, const LocateInput& input);

}  // namespace llm
