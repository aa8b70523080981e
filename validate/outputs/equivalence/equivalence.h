#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "validate/outputs/equivalence/cases.h"
#include "validate/report/report.h"

namespace llm {

struct EquivalenceOutcome {
  std::vector<CheckResult> checks;
  FigureTable speedup;  ///< of the cache, by length of the prefix; passes or fails nothing
  std::vector<std::string> not_covered;
};

/// Runs every case. Errors: those of run_case().
Result<std::vector<CaseText>> run_cases(const std::shared_ptr<const Model>& model,
                                        const Progress& progress = {});

/// The gate of exact results (docs/testing.md): every case gives its frozen ids, tokens and logits,
/// also with every kind of proposals (with_every_proposer()); a text evaluated by every number of
/// threads, instruction set, split into calls and with nothing cached gives the definition's bits
/// (check_paths()); 50 prompts, on prefixes of 16 to 1,024 tokens, give the same 20 tokens and
/// logits with a cache and without. Nothing has a tolerance.
///
/// A failed check names the case or the path, and the first token or position with both values.
/// What this CPU lacks, and what is left out for models above 64 MiB, is in `not_covered`.
/// @param model  under Compute::kInt8
/// Errors: kIntegrity when the frozen results are of another contract version; the engine's. Cost:
/// for the embedded models, seconds.
Result<EquivalenceOutcome> check_equivalence(const std::shared_ptr<const Model>& model,
                                             const FrozenTexts& frozen,
                                             const Progress& progress = {});

}  // namespace llm
