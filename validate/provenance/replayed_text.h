#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"
#include "engine/engine.h"
#include "engine/generation/generation_state.h"
#include "engine/grammar/grammar.h"
#include "validate/provenance/receipt.h"
#include "validate/provenance/receipt_checks.h"
#include "validate/report/report.h"

namespace llm {

/// One receipt on its way through the model: says which tokens come, takes their rows of logits,
/// and judges what they give.
class ReplayedText {
 public:
  /// @param model, receipt  outlive this
  /// @param n_kept  rows that are kept to try other settings on
  /// Errors: those of one receipt, as replay_receipts() has them.
  static Result<std::unique_ptr<ReplayedText>> create(ReceiptModel& model, const Receipt& receipt,
                                                      std::size_t n_kept);
  ReplayedText(const ReplayedText&) = delete;
  ReplayedText& operator=(const ReplayedText&) = delete;

  /// Tokens that have a position.
  std::size_t n_positions() const { return std::min(tokens_.size(), receipt_.context); }
  /// The tokens of at most `most` positions from `at` on, and which rows of them are wanted: all,
  /// or none. @param sequence  that has those before
  Segment next(Sequence& sequence, std::size_t most) const;

  /// Both take all rows that are wanted, in order, and may do so at once.
  /// @param at  position of the first
  /// Errors: those of a draw.
  Status draw(std::span<const float> rows, std::size_t at);
  void hash(std::span<const float> rows) { hash_.update(std::as_bytes(rows)); }

  /// Once all is taken: the logits are the receipt's, and its tokens are not drawn from them.
  bool has_other_settings() const { return differs_ && logits_equal(); }
  /// Once all is taken. Cost: where rows were kept and settings are others, some thousand draws.
  std::vector<CheckResult> checks();

 private:
  struct Difference {
    std::size_t at;  ///< of the receipt's ids
    TokenId drawn;
  };

  ReplayedText(const Model& model, const Receipt& receipt, ReceiptTerms terms, std::size_t n_kept);

  Status keep(std::span<const float> row, TokenId id);
  bool logits_equal() const;
  std::string describe_logits(bool equal, bool drawn) const;
  std::string describe_tokens(bool logits) const;

  const Receipt& receipt_;
  const Tokenizer& tokenizer_;
  ReceiptTerms terms_;
  std::size_t n_vocab_;
  std::size_t first_drawn_;  ///< position whose logits the first token is drawn from
  std::vector<TokenId> tokens_;
  Sha256 hash_;  ///< of the rows from first_drawn_ on
  std::size_t n_kept_;
  DrawnRows kept_;
  std::optional<GrammarState> kept_grammar_;  ///< behind the ids of kept_
  bool left_grammar_ = false;
  std::optional<Difference> differs_;
  GenerateSink nobody_;
  GenerationState text_;
  std::vector<TokenId> drawn_ids_;
};

}  // namespace llm
