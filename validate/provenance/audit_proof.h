#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"
#include "engine/engine.h"
#include "validate/provenance/receipt.h"
#include "validate/provenance/run_rows.h"

namespace llm {

/// What somebody who checks a receipt asks for (docs/receipts.md, "Audits").
struct Challenge {
  std::string text;        ///< unknown to the maker of the receipt when it was made
  std::size_t rows = 690;  ///< of all: 1 % altered ones are missed once in a thousand times
  std::size_t draws = 16;  ///< of all, and the last one
};

/// What a challenge asks for of a run.
struct AuditPlan {
  std::vector<std::size_t> draws;   ///< by their number, ascending
  std::vector<std::size_t> asked;   ///< rows to be computed, ascending
  std::vector<std::size_t> inputs;  ///< rows that those are computed from, ascending
  std::vector<std::size_t> shown;   ///< both, ascending

  /// @pre receipt.rows_sha256
  static AuditPlan of(const RowTable& table, const Receipt& receipt, const Challenge& challenge);
};

/// An opening as it is read.
struct AuditProof {
  std::vector<Sha256Digest> leaves;  ///< of AuditPlan::shown
  RowValues values;                  ///< of AuditPlan::inputs
  std::vector<Sha256Digest> nodes;   ///< merkle_proof()

  /// Nothing is allocated on the word of the bytes. Errors: kUnsupported for another version,
  /// kIntegrity for another receipt's or challenge's, kMalformed for another size, each with the
  /// field.
  static Result<AuditProof> parse(std::span<const std::byte> bytes, const RowTable& table,
                                  const AuditPlan& plan, const Receipt& receipt,
                                  const Challenge& challenge);
};

/// The file. @param leaves  of all rows  @param values  of AuditPlan::inputs, at least
std::vector<std::byte> opening_bytes(const AuditPlan& plan, const Receipt& receipt,
                                     const Challenge& challenge, std::vector<Sha256Digest> leaves,
                                     const RowValues& values);

/// Evaluates a receipt's tokens, all by prefill, with logits of every position.
/// Errors: the engine's. Cost: one prefill, and what `sink` does.
Status evaluate_run(const std::shared_ptr<const Model>& model, const Receipt& receipt,
                    ProbeSink& sink, const Progress& progress = {});

/// Receipt::rows_sha256. Errors: evaluate_run()'s. Cost: its, and hashing all rows.
Result<std::string> rows_sha256(const std::shared_ptr<const Model>& model, const Receipt& receipt,
                                const Progress& progress = {});

/// What answers a challenge. Errors: evaluate_run()'s; kIntegrity where the rows are not those of
/// the receipt. Cost: as rows_sha256().
/// @pre receipt.rows_sha256
Result<std::vector<std::byte>> open_rows(const std::shared_ptr<const Model>& model,
                                         const Receipt& receipt, const Challenge& challenge,
                                         const Progress& progress = {});

}  // namespace llm
