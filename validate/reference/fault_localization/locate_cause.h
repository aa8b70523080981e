#pragma once

#include <string>

#include "base/result.h"
#include "validate/reference/dump/dump.h"
#include "validate/reference/fault_localization/locate_signature.h"
#include "validate/reference/fault_localization/op_check.h"

namespace llm {

/// An op that gives something else than it should, and what was seen of the difference.
struct WrongOp {
  int layer;
  const Tap& tap;
  const OpOutput& output;
  SignatureKind kind;
  /// The reference differs from the definition; else a run does. Of the two sides of `output`,
  /// `expected` is the reference's, or `actual` the run's.
  bool is_reference;
  const Dump& inputs;  ///< that the op was given
  TokenRows rows;      ///< whose tokens `output` has
};

/// Where to look, by the form and the size of the difference: a number of the file (eps, RoPE's
/// base or factor) where the values follow from another one, which is given; a part of the op where
/// the form shows it; else all that the op depends on, and how far the values are from the right
/// ones. Errors: those of engine_order_tap().
Result<std::string> likely_cause(const Replay& replay, const WrongOp& wrong);

}  // namespace llm
