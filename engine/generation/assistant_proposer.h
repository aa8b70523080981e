#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/forward/forward.h"
#include "engine/generation/proposer.h"

namespace llm {

/// What the proposers of one model's requests share: a small model that is made for it, its trunk
/// (HyperParameters::d_trunk), and memory of a pass. One thread at a time.
class Assistant {
 public:
  /// @param model  loaded with LoadOptions::trunk  @param kv  of the trunk's sequences
  /// @param context  positions of the longest text
  /// Errors: kResource.
  static Result<std::shared_ptr<Assistant>> create(std::shared_ptr<const Model> model, KvType kv,
                                                   std::size_t context);

  const Model& model() const { return *model_; }

  struct Rows {
    std::span<const float> logits;  ///< behind the token
    std::span<const float> hidden;  ///< for the token after it, a row of d_trunk
  };
  /// @param trunk  the text's, of which positions [0, n_stored) are read
  /// @param hidden  the trunk's final norm at the position before `token`, or the last Rows::hidden
  /// @return rows until the next call; empty where keys that it needs are not there
  Rows evaluate(const SequenceState& trunk, std::size_t n_stored, TokenId token,
                std::span<const float> hidden);

 private:
  Assistant(std::shared_ptr<const Model> model, Forward forward)
      : model_(std::move(model)), forward_(std::move(forward)) {}

  std::shared_ptr<const Model> model_;
  Forward forward_;
  std::vector<float> rows_;
};

/// Proposes what an Assistant predicts, drawn as the text itself is drawn. All the tokens of a
/// proposal are predicted from the position of the text's last token, as the assistant was trained
/// (generation/candidate_generator.py of transformers 5.24). Grade 0.
class AssistantProposer final : public Proposer {
 public:
  explicit AssistantProposer(std::shared_ptr<Assistant> assistant)
      : assistant_(std::move(assistant)) {}

  std::string_view name() const override { return "assistant"; }
  bool reads_rows() const override { return true; }
  void take_rows(std::size_t first, std::span<const float> rows) override;
  /// Cost: a pass of the assistant for each token. It has nothing to compute of a prompt.
  Proposal propose(const ProposalRequest& request, const Worth& worth) override;

 private:
  std::shared_ptr<Assistant> assistant_;
  std::vector<float> rows_;    ///< of the model's final norm: the last ones of its last pass
  std::size_t first_row_ = 0;  ///< the position of the first
};

}  // namespace llm
