#pragma once

#include <string>
#include <vector>

#include "validate/reference/diff/layer_diff.h"

namespace llm {

/// One op with an error of its own: on right inputs it gives a wrong output.
struct Finding {
  int layer = 0;            ///< ProbeSink::kGlobal outside the layers
  std::string tap;          ///< the op's output
  std::string op;           ///< tap_origin(): "matrix product with blk.0.attn_q.weight"
  std::string weight_type;  ///< "Q4_K"; empty for ops without a matrix
  /// The definition, on the reference's inputs, does not give the reference's output.
  bool definition = false;
  /// The compared run, on its own inputs, does not give what the definition gives on them.
  bool run = false;
  double nmse = 0;        ///< of the comparison that failed, the definition's first
  double limit = 0;       ///< what it may be; 0: equal bits
  std::string signature;  ///< how the wrong output differs; may be empty
  std::string tokens;     ///< which tokens are wrong; empty: all
  std::string cause;      ///< where to look, in words
};

/// What locating an error found.
struct Location {
  /// Contradictions that no op explains: hyper-parameters, the quantizer of activations.
  std::vector<std::string> preflight;
  std::vector<Finding> findings;     ///< in the order of the data flow
  std::vector<std::string> remarks;  ///< what could not be replayed, and why
  bool replayed = false;             ///< ops were replayed: something failed

  bool empty() const { return preflight.empty() && !replayed; }
};

/// The findings as lines of plain text, each ended; nothing where no op was replayed.
std::string location_text(const Location& location);

/// One question put to every tap, and the answers.
struct DiffSection {
  std::string title;  ///< "f32: every op on the reference's inputs gives its output"
  std::string name;   ///< short, for machines: "f32-ops"
  LayerDiff diff;
  Location location = {};               ///< where the error comes from, when something failed
  bool judged = true;                   ///< false: figures to know, which fail nothing
  std::vector<std::string> notes = {};  ///< what was bounded, and figures of the whole

  bool passed() const { return !judged || (diff.passed() && location.empty()); }
  /// kPass, kFail or kShown.
  TapVerdict verdict() const {
    return !judged ? TapVerdict::kShown : passed() ? TapVerdict::kPass : TapVerdict::kFail;
  }
};

}  // namespace llm
