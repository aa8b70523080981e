#pragma once

#include <functional>

#include "validate/gguf_lint/lint_context.h"

namespace llm {

// The checks, each one row of the table in doctor.cpp. They report to the patient; what they are
// about, and what each finding means, is in docs/doctor.md.

/// Bytes that belong to no tensor.
void check_file(LintContext& patient);
/// Types of the values that loaders read.
void check_values(LintContext& patient);
/// Ids of special tokens: in range, and of tokens that are special.
void check_special_ids(LintContext& patient);
/// Counts and sizes against the tensors' shapes, the vocabulary and each other.
void check_shapes(LintContext& patient);
/// Texts, kinds, scores: lengths, duplicates, unused ones.
void check_tokens_listed(LintContext& patient);
/// tokenizer.ggml.pre against what the vocabulary's own tokens show.
void check_pre_tokenizer(LintContext& patient);
/// Tokens against what the tokenizer makes of their texts.
void check_merges(LintContext& patient);
/// What begins a text: the right token, once.
void check_bos(LintContext& patient);
/// The chat template: there, right, in tokens of this vocabulary; the turn's end.
void check_chat(LintContext& patient);
/// RoPE's base, scaling and factors; windows.
void check_rope(LintContext& patient);
/// Types of sensitive tensors beside those of the bulk.
void check_types(LintContext& patient);
/// What is left that keeps the model from loading here.
void check_loads(LintContext& patient);

/// Progress in bytes of weights.
using WeightProgress = std::function<void(std::size_t done, std::size_t total)>;
/// Every block of every tensor: NaN, Inf, absurd scales, zeros. @param threads  at least 1
void check_blocks(LintContext& patient, int threads, const WeightProgress& progress);

}  // namespace llm
