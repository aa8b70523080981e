#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/generation/chat_style.h"
#include "engine/generation/generate.h"
#include "engine/generation/generation_state.h"
#include "engine/grammar/grammar.h"
#include "engine/model/model.h"
#include "validate/provenance/receipt.h"
#include "validate/report/report.h"

namespace llm {

// What every check of a receipt needs besides the model's rows.

/// What receipts of one model have in common, made once. Of one thread at a time.
class ReceiptModel {
 public:
  /// @param model  outlives this
  explicit ReceiptModel(const Model& model) : model_(model), grammars_(model.tokenizer()) {}

  const Model& model() const { return model_; }
  /// Null where the receipt is no chat's. Errors: ChatStyle::find()'s.
  Result<std::shared_ptr<const ChatStyle>> style(const Receipt& receipt);
  /// Null where the receipt has none. Errors: Grammar::compile()'s.
  Result<std::shared_ptr<const Grammar>> grammar(const Receipt& receipt);

 private:
  const Model& model_;
  GrammarCompiler grammars_;
  std::map<std::string, std::shared_ptr<const ChatStyle>> styles_;
};

/// What a receipt's tokens were drawn under, by a model.
struct ReceiptTerms {
  std::shared_ptr<const ChatStyle> style;  ///< null: it is no chat's
  GenerateOptions options;                 ///< the grammar compiled

  /// Errors: kUnsupported for a chat template that is neither built in nor the model's; kIntegrity
  /// for a receipt of another contract version, kMalformed for an id that the vocabulary lacks,
  /// kUnsupported for a text that was interrupted before it began; Grammar::compile()'s.
  static Result<ReceiptTerms> of(ReceiptModel& model, const Receipt& receipt);
};

/// Most rows of logits that are held at once.
std::size_t receipt_batch(std::size_t n_vocab);

/// A token in words: 40 "a".
std::string shown_token(const Tokenizer& tokenizer, TokenId id);

/// The ids of the prompt's text, or of the messages. @pre it has them
/// Errors: those of the chat template.
Result<std::vector<TokenId>> encode_prompt(const Receipt& receipt, const Tokenizer& tokenizer,
                                           const ChatStyle* style);

/// Whether the prompt's text, or the messages, give its ids; nothing for a prompt given as ids.
std::optional<CheckResult> check_prompt(const Receipt& receipt, const Tokenizer& tokenizer,
                                        const ChatStyle* style);

/// Whether text and stop reason follow from the tokens, which `text` has drawn, and what comes next
/// (GenerationState::drawn), if anything may. Ends `text`.
CheckResult check_text(const Receipt& receipt, const Tokenizer& tokenizer,
                       const GenerateOptions& options, GenerationState& text);

}  // namespace llm
