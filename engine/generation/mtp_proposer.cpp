#include "engine/generation/mtp_proposer.h"

#include <algorithm>
#include <utility>

#include "base/float_environment.h"
#include "engine/generation/speculation_policy.h"

namespace llm {
namespace {

/// With more new pairs than that, they are all that is evaluated (as in DraftProposer).
constexpr std::size_t kMostNewPairs = 4 + SpeculationPolicy::kMost;
/// Rows that stay when they have been read: behind wrong tokens they are read again.
constexpr std::size_t kKeptRows = 64;

}  // namespace

Result<std::shared_ptr<MtpDrafter>> MtpDrafter::create(std::shared_ptr<const Model> mtp, KvType kv,
                                                       std::size_t context, std::size_t n_texts) {
  const std::size_t n_pages =
      n_texts * KvGroups(mtp->config(), kv).most_pages(context, std::min(kBatch, context));
  LLM_TRY(auto pool, KvPool::create(mtp->config(), n_pages, kv));
  LLM_TRY(Forward forward, Forward::create(*mtp, kBatch, context, kv));
  return std::shared_ptr<MtpDrafter>(
      new MtpDrafter(std::move(mtp), std::move(forward), std::move(pool)));
}

Result<std::shared_ptr<MtpDrafter>> MtpDrafter::load(const std::string& path, const Model& trunk,
                                                     KvType kv, std::size_t context,
                                                     std::size_t n_texts) {
  LLM_TRY(auto mtp, Model::load_mtp(path, trunk));
  return create(std::move(mtp), kv, context, n_texts);
}

MtpDrafter::Rows MtpDrafter::evaluate(SequenceState& state, std::size_t position,
                                      std::span<const TokenId> tokens,
                                      std::span<const float> hidden) {
  const FloatEnvironment contract;
  const std::size_t n_vocab = model_->config().n_vocab;
  const std::size_t width = model_->config().d_model;
  while (!tokens.empty()) {
    const auto part = tokens.first(std::min(tokens.size(), kBatch));
    if (!state.reserve(position, position + part.size())) return {};
    const bool is_last = part.size() == tokens.size();
    const PassSegment segment{.tokens = part,
                              .first_position = position,
                              .state = &state,
                              .n_logits = is_last ? std::size_t{1} : 0,
                              .all_normed = is_last,
                              .hidden = hidden.data()};
    rows_.resize(is_last ? n_vocab + part.size() * width : 0);
    forward_.run({&segment, 1}, rows_, nullptr);
    position += part.size();
    tokens = tokens.subspan(part.size());
    hidden = hidden.subspan(part.size() * width);
  }
  const auto rows = std::span<const float>(rows_);
  return {rows.first(n_vocab), rows.last(width)};
}

void MtpProposer::take_rows(std::size_t first, std::span<const float> rows) {
  if (first < first_row_ || first > end_of_rows()) {
    rows_.clear();
    first_row_ = first;
  }
  rows_.resize((first - first_row_) * width());
  rows_.insert(rows_.end(), rows.begin(), rows.end());
  if (first < first_pair_ + held_.size()) cut(first - std::min(first, first_pair_));
  const std::size_t n = rows_.size() / width();
  if (n <= kMostRows) return;
  rows_.erase(rows_.begin(), rows_.end() - static_cast<std::ptrdiff_t>(kMostRows * width()));
  first_row_ += n - kMostRows;
}

void MtpProposer::cut(std::size_t n_pairs) {
  if (n_pairs >= held_.size()) return;
  held_.resize(n_pairs);
  state_.truncate(n_pairs);
}

MtpDrafter::Rows MtpProposer::follow(std::span<const TokenId> text) {
  n_new_ = 0;
  if (text.size() < 2 || end_of_rows() + 1 < text.size()) return {};  // a row is missing
  const auto pairs = text.subspan(std::min(first_pair_ + 1, text.size()));
  const auto shared =
      static_cast<std::size_t>(std::ranges::mismatch(held_, pairs).in1 - held_.begin());
  cut(std::min(shared, pairs.size() - std::min<std::size_t>(pairs.size(), 1)));
  if (first_pair_ + held_.size() < first_row_ || pairs.empty()) {
    cut(0);
    first_pair_ = first_row_;
  }
  const std::size_t first = first_pair_ + held_.size();  // the position of the first new row
  if (first + 1 >= text.size()) return {};
  const auto tokens = text.subspan(first + 1);
  n_new_ = tokens.size();
  const auto rows = drafter_->evaluate(
      state_, held_.size(), tokens,
      std::span(rows_).subspan((first - first_row_) * width(), tokens.size() * width()));
  if (rows.logits.empty()) return {};
  held_.insert(held_.end(), tokens.begin(), tokens.end());
  const std::size_t n_read = text.size() - 1 - first_row_;
  if (n_read > kKeptRows) {
    const std::size_t n = n_read - kKeptRows;
    rows_.erase(rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(n * width()));
    first_row_ += n;
  }
  return rows;
}

Proposal MtpProposer::propose(const ProposalRequest& request, const Worth& worth) {
  Proposal proposal;
  const std::size_t wanted = worth(proposal.grade);
  if (wanted == 0) return proposal;
  MtpDrafter::Rows rows = follow(request.text);
  if (n_new_ > kMostNewPairs) return proposal;
  const std::size_t n_true = held_.size();
  std::vector<TokenId> past(request.text.begin(), request.text.end());
  while (!rows.logits.empty()) {
    const auto id = request.draw(rows.logits, past);
    if (!id) break;
    proposal.tokens.push_back(*id);
    past.push_back(*id);
    if (proposal.tokens.size() == wanted) break;
    const std::vector<float> hidden(rows.normed.begin(), rows.normed.end());
    rows = drafter_->evaluate(state_, n_true + proposal.tokens.size() - 1, {&*id, 1}, hidden);
  }
  // Its own rows are no rows of the model.
  state_.truncate(n_true);
  return proposal;
}

}  // namespace llm
