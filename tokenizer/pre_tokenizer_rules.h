#pragma once

#include <span>
#include <string>
#include <string_view>

namespace llm {

/// One pass over the pieces of the pass before: each match becomes a piece, and so does what lies
/// between two matches.
struct SplitPass {
  /// A regular expression as the model's tokenizer.json has it, in the dialect of its reader:
  /// \s is Unicode's White_Space, \p{L} and others are general categories, (?i:...) folds as
  /// Unicode does. It never matches nothing.
  std::string_view regex;
  /// The expression is over bytes, not characters.
  bool of_bytes = false;
};

/// How a kind of byte-level BPE vocabulary splits text before merging, and what it implies.
struct PreTokenizerRule {
  std::string_view name;  ///< GGUF's tokenizer.ggml.pre
  std::span<const SplitPass> passes;
  bool ignore_merges = false;  ///< a piece that is a token is that one, whatever merges make of it
  bool add_bos = false;        ///< where the file does not say
};

/// The rule of that name, or nullptr.
const PreTokenizerRule* find_pre_tokenizer_rule(std::string_view name);

/// All of them, for tests.
std::span<const PreTokenizerRule> all_pre_tokenizer_rules();

/// Their names, separated by ", ".
std::string pre_tokenizer_names();

}  // namespace llm
