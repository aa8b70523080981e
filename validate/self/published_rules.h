#pragma once

#include <span>
#include <string_view>

namespace llm {

/// A step of the `pre_tokenizer` in a tokenizer.json: each match becomes a piece, and so does what
/// lies between two matches. Hugging Face's Digits, Punctuation and ByteLevel are said as the
/// expression that they stand for.
struct PublishedStep {
  std::string_view regex;
  /// ByteLevel came before, so the text is one of GPT-2's characters for each byte.
  bool after_byte_level = false;
};

/// How the models with that tokenizer.ggml.pre split text, from their tokenizer.json and by the
/// source of `tokenizers`: a second statement of tokenizer/pre_tokenizer_rules.cpp, so that a wrong
/// row there is noticed on any vocabulary.
struct PublishedRule {
  std::string_view name;
  std::span<const PublishedStep> steps;
  bool ignore_merges = false;
};

/// All of them.
std::span<const PublishedRule> all_published_rules();

/// @pre there is one of that name
const PublishedRule& published_rule(std::string_view name);

}  // namespace llm
