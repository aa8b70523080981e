#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/generation/generate.h"
#include "validate/provenance/receipt.h"

namespace llm {

/// Another text for a message of a receipt, whose messages are those of `messages`; or the system
/// message, if there is one, and the prompt.
struct MessageEdit {
  std::size_t number;  ///< from 1
  std::string text;
};

/// The receipt of a run that is still to be made: that of `receipt` with other messages, behind the
/// first `n_kept` tokens of its output. These become the end of the prompt, which is then given as
/// ids: so the run's receipt is one like any other. A limit of tokens counts them.
/// Other settings are the caller's to change in `receipt` before.
/// @pre n_kept <= receipt.ids.size()
/// Errors: kUnsupported for a grammar with kept tokens, which would begin anew, and for an edit of
/// a prompt that is only ids; kUsage for a message that is not there, and a limit below n_kept;
/// those of the chat template.
Result<Receipt> branch_of(const Model& model, Receipt receipt, std::size_t n_kept,
                          std::span<const MessageEdit> edits);

struct ContinueOptions {
  std::size_t n_given = 0;  ///< tokens of the receipt's output that are not drawn, but taken
  std::shared_ptr<StateStore> store = {};  ///< of keys and values; null: all are computed
  GenerateSink sink = {};                  ///< told of given tokens, too
  std::function<bool()> interrupted = {};  ///< asked before each draw
};

/// Makes a receipt's run again: its prompt and the given tokens by prefill, then token after token.
/// @param model  the receipt's, in its mode
/// @return the receipt with what came out; equal to `receipt` where that is right
/// @pre how.n_given <= receipt.ids.size()
/// Errors: ReceiptTerms::of()'s; kUsage for a prompt that is longer than the context; the engine's
/// and the sink's. Cost: a prefill, with rows of logits from the prompt's last position on, and the
/// generation of the rest.
Result<Receipt> continue_receipt(const std::shared_ptr<const Model>& model, const Receipt& receipt,
                                 const ContinueOptions& how);

/// How the output of `made` differs from that of `recorded`, in a clause; empty: not at all.
std::string output_difference(const Receipt& recorded, const Receipt& made,
                              const Tokenizer& tokenizer);

}  // namespace llm
