#include "engine/generation/assistant_proposer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/float_environment.h"
#include "engine/generation/speculation_policy.h"
#include "engine/state/kv_groups.h"

namespace llm {

Result<std::shared_ptr<Assistant>> Assistant::create(std::shared_ptr<const Model> model, KvType kv,
                                                     std::size_t context) {
  LLM_CHECK(model->config().has_trunk());
  LLM_TRY(Forward forward, Forward::create(*model, 1, context, kv));
  return std::shared_ptr<Assistant>(new Assistant(std::move(model), std::move(forward)));
}

Assistant::Rows Assistant::evaluate(const SequenceState& trunk, std::size_t n_stored, TokenId token,
                                    std::span<const float> hidden) {
  const FloatEnvironment contract;
  const HyperParameters& config = model_->config();
  for (const LayerSpec& layer : config.layers) {
    const auto pages = trunk.pages(*layer.attention()->kv_of_layer);
    const std::size_t end = KvGroups::pages_for(n_stored);
    if (pages.size() < end) return {};
    const std::size_t begin = KvGroups::first_page(layer.window(), n_stored - 1);
    if (std::ranges::count(pages.subspan(begin, end - begin), nullptr) > 0) return {};
  }
  rows_.resize(config.n_vocab + config.d_normed());
  const PassSegment segment{.tokens = {&token, 1},
                            .first_position = n_stored - 1,
                            .state = nullptr,
                            .n_logits = 1,
                            .all_normed = true,
                            .hidden = hidden.data(),
                            .trunk = &trunk};
  forward_.run({&segment, 1}, rows_, nullptr);
  const auto rows = std::span<const float>(rows_);
  return {rows.first(config.n_vocab), rows.last(config.d_normed())};
}

void AssistantProposer::take_rows(std::size_t first, std::span<const float> rows) {
  // Behind wrong tokens the row before them is read.
  const std::size_t width = assistant_->model().config().d_normed();
  const std::size_t n = rows.size() / width;
  const std::size_t kept = std::min(n, SpeculationPolicy::kMost + 1);
  rows_.assign(rows.end() - static_cast<std::ptrdiff_t>(kept * width), rows.end());
  first_row_ = first + n - kept;
}

Proposal AssistantProposer::propose(const ProposalRequest& request, const Worth& worth) {
  Proposal proposal;
  const std::size_t wanted = worth(proposal.grade);
  const std::size_t width = assistant_->model().config().d_normed();
  const std::size_t n_stored = request.text.size() - 1;
  if (wanted == 0 || request.state == nullptr || n_stored <= first_row_ ||
      n_stored > first_row_ + rows_.size() / width)
    return proposal;
  std::vector<TokenId> past(request.text.begin(), request.text.end());
  const auto row = rows_.begin() + static_cast<std::ptrdiff_t>((n_stored - 1 - first_row_) * width);
  std::vector<float> hidden(row, row + static_cast<std::ptrdiff_t>(width));
  while (proposal.tokens.size() < wanted) {
    const auto rows = assistant_->evaluate(*request.state, n_stored, past.back(), hidden);
    if (rows.logits.empty()) break;
    const auto id = request.draw(rows.logits, past);
    if (!id) break;
    proposal.tokens.push_back(*id);
    past.push_back(*id);
    hidden.assign(rows.hidden.begin(), rows.hidden.end());
  }
  return proposal;
}

}  // namespace llm
