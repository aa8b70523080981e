#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "validate/report/report.h"

namespace llm {

/// What one document scores: its tokens and its end, each with all of the document before it.
struct DocumentScore {
  double nll = 0;  ///< sum, in nats
  std::size_t tokens = 0;

  friend bool operator==(const DocumentScore&, const DocumentScore&) = default;
};

/// The numbers of documents after which the gate may decide: 32, 64, 128, ... and all of them.
std::vector<std::size_t> gate_looks(std::size_t n_documents);

/// Whether perplexity is above a baseline's by more than an allowed share.
struct DocumentGate {
  Verdict verdict = Verdict::kUndecided;
  double mean = 0;   ///< of nll - the baseline's, per token: perplexity grows by exp(mean)
  double lower = 0;  ///< interval of the mean at this look
  double upper = 0;
  std::size_t documents = 0;  ///< looked at
};

/// Judges the first documents of a text, `scores`, against those of a baseline that has all of the
/// text in the same order. A loss of more than `limit` nats a token fails, one that is surely not
/// that large passes. Of all texts that a model without (with) a loss is tried on, at most 2.5 %
/// end in a wrong answer, although each look may be the last (docs/quality.md). Equal scores pass.
/// Scores that are not finite, or documents of other lengths, fail.
/// @pre scores.size() is one of gate_looks(baseline.size())
DocumentGate document_gate(std::span<const DocumentScore> scores,
                           std::span<const DocumentScore> baseline, double limit);

/// Scores the documents of `text` in an order drawn by `seed`, whole (in windows of the model's
/// context), look after look, until `enough` says so of the scores so far or all are scored.
/// Errors: kUsage for a text without documents; the engine's.
Result<std::vector<DocumentScore>> score_documents(
    const std::shared_ptr<const Model>& model, std::string_view text, std::uint64_t seed,
    const std::function<bool(std::span<const DocumentScore>)>& enough,
    const Progress& progress = {});

}  // namespace llm
