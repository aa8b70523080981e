#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "validate/outputs/quality/document_gate.h"
#include "validate/outputs/quality/sweep.h"

namespace llm {

/// Where frozen figures come from.
struct BaselineOrigin {
  std::string model_sha256;
  std::string text_sha256;
  std::string engine_version;
  std::string timestamp;  ///< UTC, ISO 8601
  std::string reason;     ///< why it was made
};

/// The frozen figures of one implementation.
struct QualityBaseline {
  std::string implementation;
  BaselineOrigin origin;
  std::string tokens_sha256;
  QualityConfig config;
  double perplexity = 0;
  double repetition = 0;
  double distinct2 = 0;
  double distinct3 = 0;
  double consistency = 0;
};

/// The frozen scores of every document of the text, in the order of scoring.
struct DocumentBaseline {
  BaselineOrigin origin;
  std::uint64_t seed = 1;  ///< of the order
  std::vector<DocumentScore> documents;
};

/// "llmcheck-quality/2" and "llmcheck-documents/1" as JSON. Numbers come back as they were.
std::string baseline_json(const QualityBaseline& baseline);
std::string document_baseline_json(const DocumentBaseline& baseline);
/// Errors: kMalformed naming the key.
Result<QualityBaseline> parse_baseline(std::string_view json);
Result<DocumentBaseline> parse_document_baseline(std::string_view json);
/// The figures of `result`, ready to be frozen; the caller fills in where they come from.
QualityBaseline make_baseline(const QualityResult& result, const QualityConfig& config);

/// The gates, one check each: perplexity within 5 %, repetition at most 10 % higher, distinct-2 and
/// -3 at most 10 % lower, consistency exactly 1. The same model must give the same tokens.
std::vector<CheckResult> check_against(const QualityResult& result, const std::string& model_sha256,
                                       const QualityBaseline& baseline);

/// Scores documents until it is decided whether the model's perplexity is more than 0.2 % above the
/// baseline's; the check is undecided when all of the text does not tell.
/// Errors: those of score_documents; kIntegrity when the text has another number of documents.
Result<CheckResult> check_documents(const std::shared_ptr<const Model>& model,
                                    std::string_view text, const DocumentBaseline& baseline,
                                    const Progress& progress = {});

}  // namespace llm
