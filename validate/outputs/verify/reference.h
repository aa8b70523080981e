#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/vocab_spec.h"

namespace llm {

/// The most likely tokens of one step, largest logit first (equal ones: the lower id first).
struct TopStep {
  std::vector<TokenId> ids;
  std::vector<float> logits;  ///< of ids

  TokenId choice() const { return ids.front(); }  ///< what a greedy run takes
};

/// One prompt with the reference's greedy continuation.
struct VerifyPrompt {
  std::string id;                   ///< unique in its file
  std::string kind;                 ///< "base" or "instruct"
  std::optional<std::string> text;  ///< absent when the prompt was given as ids
  std::vector<TokenId> ids;         ///< of the prompt, BOS included; at least 1
  std::vector<TopStep> steps;       ///< steps[t] follows ids and the choices of steps[0..t)
};

/// A frozen reference, `llmcheck-verify/1` (docs/verify.md).
struct VerifyReference {
  std::string producer;
  std::string oracle;  ///< "R0"
  std::string model_name;
  std::string model_sha256;    ///< lower-case hex
  std::string tokenizer_hash;  ///< as validate/reference/dump/engine_dump.h; may be empty
  std::size_t n_steps = 0;     ///< of every prompt
  std::size_t top_k = 0;       ///< entries of every step; at least 2
  std::vector<VerifyPrompt> prompts;

  /// Tokens of the longest prompt with its continuation.
  std::size_t context() const;
};

/// Reads and checks a reference file: version, kinds and lengths of all fields, ids that are none,
/// steps whose logits do not descend or whose first id is not the token taken, prompts given twice.
/// Errors: kMalformed naming the field ("prompts[3].top_ids[7]"); kUnsupported for another
/// schema_version.
Result<VerifyReference> parse_verify_reference(std::string_view json);

/// That every id is below `n_vocab`. Errors: kMalformed naming the field.
Status check_ids(const VerifyReference& reference, std::size_t n_vocab);

/// The quick selection: the first base and the first instruct prompt (or the first two).
/// @post at most 2 prompts, in the file's order
void keep_quick_prompts(VerifyReference& reference);

}  // namespace llm
