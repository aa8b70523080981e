#ifndef LLM_VALIDATE_QUALITY_BASELINE_H_
#define LLM_VALIDATE_QUALITY_BASELINE_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "validate/quality/sweep.h"

namespace llm {

/// The frozen figures of one implementation, with what they were made from.
struct QualityBaseline {
  std::string implementation;
  std::string model_sha256;
  std::string text_sha256;
  std::string tokens_sha256;
  std::string engine_version;
  std::string timestamp;  ///< UTC, ISO 8601
  std::string reason;     ///< why it was made
  QualityConfig config;
  double perplexity = 0;
  double repetition = 0;
  double distinct2 = 0;
  double distinct3 = 0;
  double consistency = 0;
  std::vector<double> nll;  ///< rounded to 1e-6
};

/// "llmcheck-quality/1" as JSON.
std::string baseline_json(const QualityBaseline& baseline);
/// Errors: kMalformed naming the key.
Result<QualityBaseline> parse_baseline(std::string_view json);
/// The figures of `result`, ready to be frozen; the caller fills in where they come from.
QualityBaseline make_baseline(const QualityResult& result, const QualityConfig& config);

/// The gates, one check each: perplexity within 5 %, repetition at most 10 % higher, distinct-2 and
/// -3 at most 10 % lower, consistency exactly 1, and the paired gate on nll (0.2 %), which fails
/// only when it is sure and says so when it is not. The same model must give the same tokens.
std::vector<CheckResult> check_against(const QualityResult& result, const std::string& model_sha256,
                                       const QualityBaseline& baseline);

}  // namespace llm

#endif  // LLM_VALIDATE_QUALITY_BASELINE_H_
