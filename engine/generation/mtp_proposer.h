#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/forward/forward.h"
#include "engine/generation/proposer.h"
#include "engine/state/sequence_state.h"

namespace llm {

/// What the proposers of one model's requests share: its block that predicts further tokens
/// (HyperParameters::mtp()), memory of a pass, and pages. One thread at a time.
class MtpDrafter {
 public:
  /// The most tokens of a pass.
  static constexpr std::size_t kBatch = 256;

  /// @param mtp  Model::load_mtp()
  /// @param context  positions of the longest text  @param n_texts  that there are at once
  /// Errors: kResource.
  static Result<std::shared_ptr<MtpDrafter>> create(std::shared_ptr<const Model> mtp, KvType kv,
                                                    std::size_t context, std::size_t n_texts);

  /// The same of the file that `trunk` was loaded from. Errors: also those of Model::load_mtp().
  static Result<std::shared_ptr<MtpDrafter>> load(const std::string& path, const Model& trunk,
                                                  KvType kv, std::size_t context,
                                                  std::size_t n_texts);

  const Model& model() const { return *model_; }
  SequenceState open() const { return SequenceState(pool_); }

  struct Rows {
    std::span<const float> logits;  ///< behind the last token
    std::span<const float> normed;  ///< the row of the final norm there
  };
  /// Appends tokens to `state`. @param hidden  of each token, the row of the position before it
  /// @return rows until the next call; empty where no page is left
  Rows evaluate(SequenceState& state, std::size_t position, std::span<const TokenId> tokens,
                std::span<const float> hidden);

 private:
  MtpDrafter(std::shared_ptr<const Model> model, Forward forward, std::shared_ptr<KvPool> pool)
      : model_(std::move(model)), forward_(std::move(forward)), pool_(std::move(pool)) {}

  std::shared_ptr<const Model> model_;
  Forward forward_;
  std::shared_ptr<KvPool> pool_;
  std::vector<float> rows_;
};

/// Proposes what the model's own block for further tokens predicts, drawn as the text itself is
/// drawn. It reads the rows of the final norm that the model has computed, from the last kMostRows
/// positions of a prompt on; behind its own tokens it reads its own rows. Grade 0.
class MtpProposer final : public Proposer {
 public:
  static constexpr std::size_t kMostRows = 1024;

  explicit MtpProposer(std::shared_ptr<MtpDrafter> drafter)
      : drafter_(std::move(drafter)), state_(drafter_->open()) {}

  std::string_view name() const override { return "mtp"; }
  bool reads_rows() const override { return true; }
  void take_rows(std::size_t first, std::span<const float> rows) override;
  /// Behind many new tokens, as those of a prompt, it evaluates these and proposes nothing yet.
  /// Cost: a pass of the block and of the output for each token.
  Proposal propose(const ProposalRequest& request, const Worth& worth) override;

 private:
  std::size_t width() const { return drafter_->model().config().d_model; }
  std::size_t end_of_rows() const { return first_row_ + rows_.size() / width(); }
  /// Makes `state_` one of the pairs of a row and the next token up to the text's last token.
  /// @return what follows it
  MtpDrafter::Rows follow(std::span<const TokenId> text);
  void cut(std::size_t n_pairs);

  std::shared_ptr<MtpDrafter> drafter_;
  SequenceState state_;
  std::vector<TokenId> held_;   ///< the tokens of the pairs that state_ has
  std::size_t first_pair_ = 0;  ///< the position of the row of the first pair
  std::size_t n_new_ = 0;       ///< pairs that the last follow() evaluated
  std::vector<float> rows_;     ///< of the final norm, of neighbouring positions
  std::size_t first_row_ = 0;   ///< the position of the first
};

}  // namespace llm
