#pragma once

#include <string>
#include <vector>

#include "validate/reference/diff/layer_diff.h"
#include "validate/reference/locate/locate_finding.h"

namespace llm {

/// One question put to every tap, and the answers.
struct DiffSection {
  std::string title;  ///< "f32: every op on the reference's inputs gives its output"
  std::string name;   ///< short, for machines: "f32-ops"
  LayerDiff diff;
  Location location = {};               ///< where the error comes from, when something failed
  bool judged = true;                   ///< false: figures to know, which fail nothing
  std::vector<std::string> notes = {};  ///< what was bounded, and figures of the whole

  bool passed() const { return !judged || (diff.passed() && location.empty()); }
};

}  // namespace llm
