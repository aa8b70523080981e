#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "validate/provenance/audit_proof.h"
#include "validate/provenance/receipt.h"
#include "validate/report/report.h"

namespace llm {

struct AuditOutcome {
  std::vector<CheckResult> checks = {};
  std::size_t n_rows = 0;   ///< of the run
  std::size_t n_asked = 0;  ///< rows that were computed
  std::size_t n_draws = 0;  ///< that were drawn again
  double seconds = 0;
};

/// Whether a receipt's text is what this model gives, as far as an opening shows it: rows that the
/// challenge chose are computed from those that they depend on, each alone, and must be those that
/// the receipt's hash is of; the tokens are drawn again from the logits among them.
///
/// A failed check names the first row, in the order of the data flow, or the first token. Where
/// another `kv`, compute or setting of the sampler would give what is there, it is named.
/// @param model  the receipt's, under its compute mode; its weights may be in the file
/// @param opening  bytes from whom nothing is trusted
/// @pre receipt.rows_sha256
/// Errors: those of ReceiptTerms::of() and AuditProof::parse(); kResource; those of weights in the
/// file. Cost: hashing the opening, one product with each matrix that is asked for.
Result<AuditOutcome> audit_receipt(const std::shared_ptr<const Model>& model,
                                   const Receipt& receipt, const Challenge& challenge,
                                   std::span<const std::byte> opening);

}  // namespace llm
