#pragma once

#include "base/cpu_features.h"
#include "tests/support/test.h"

namespace llm::test {

/// The instruction sets that this CPU has; the others are reported as skipped.
inline const std::vector<Isa>& supported_isas() {
  static const std::vector<Isa> isas = [] {
    std::vector<Isa> supported;
    for (const Isa isa : all_isas()) {
      if (isa_supported(isa)) {
        supported.push_back(isa);
      } else {
        WARN("skipped: " << isa_name(isa) << " needs " << isa_requirement(isa));
      }
    }
    return supported;
  }();
  return isas;
}

}  // namespace llm::test
