#pragma once

#include <functional>

#include "validate/doctor/patient.h"

namespace llm {

// The checks, each one row of the table in doctor.cpp. They report to the patient; what they are
// about, and what each finding means, is in docs/doctor.md.

/// Bytes that belong to no tensor.
void check_file(Patient& patient);
/// Types of the values that loaders read.
void check_values(Patient& patient);
/// Ids of special tokens: in range, and of tokens that are special.
void check_special_ids(Patient& patient);
/// Counts and sizes against the tensors' shapes, the vocabulary and each other.
void check_shapes(Patient& patient);
/// Texts, kinds, scores: lengths, duplicates, unused ones.
void check_tokens_listed(Patient& patient);
/// tokenizer.ggml.pre against what the vocabulary's own tokens show.
void check_pre_tokenizer(Patient& patient);
/// Tokens against what the tokenizer makes of their texts.
void check_merges(Patient& patient);
/// What begins a text: the right token, once.
void check_bos(Patient& patient);
/// The chat template: there, right, in tokens of this vocabulary; the turn's end.
void check_chat(Patient& patient);
/// RoPE's base, scaling and factors; windows.
void check_rope(Patient& patient);
/// Types of sensitive tensors beside those of the bulk.
void check_types(Patient& patient);
/// What is left that keeps the model from loading here.
void check_loads(Patient& patient);

/// Progress in bytes of weights.
using WeightProgress = std::function<void(std::size_t done, std::size_t total)>;
/// Every block of every tensor: NaN, Inf, absurd scales, zeros. @param threads  at least 1
void check_blocks(Patient& patient, int threads, const WeightProgress& progress);

}  // namespace llm
