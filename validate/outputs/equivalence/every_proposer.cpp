#include "validate/outputs/equivalence/every_proposer.h"

#include <algorithm>
#include <functional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/generation/draft_proposer.h"
#include "engine/generation/ngram_proposer.h"

namespace llm {
namespace {

constexpr std::size_t kNgramLength = 4;
constexpr std::size_t kDraftLength = 3;

constexpr std::size_t kLongest = 7;  ///< proposal that is partly right

/// What came of a text, for a proposer that knows it: the last tokens of the texts that proposals
/// were asked for, in order, and the index of a text, by its hash, among them.
struct Heard {
  std::unordered_map<std::size_t, std::size_t> index;
  std::vector<TokenId> tokens;
};

std::size_t hash_of(std::span<const TokenId> text) {
  return std::hash<std::string_view>()(
      {reinterpret_cast<const char*>(text.data()), text.size_bytes()});
}

/// Proposes nothing and remembers the text.
class Listener final : public Proposer {
 public:
  explicit Listener(Heard& heard) : heard_(heard) {}

  std::string_view name() const override { return "none"; }
  Proposal propose(const ProposalRequest& request, const Worth&) override {
    heard_.index[hash_of(request.text)] = heard_.tokens.size();
    heard_.tokens.push_back(request.text.back());
    return {};
  }

 private:
  Heard& heard_;
};

/// Proposes for the same text 1 to 7 tokens in turn, with every number of leading right ones and
/// then a wrong one, so that everything happens to proposals that can, whatever the model is like.
class Prompter final : public Proposer {
 public:
  Prompter(const Heard& heard, std::size_t n_vocab) : heard_(heard), n_vocab_(n_vocab) {}

  std::string_view name() const override { return "right and wrong ones"; }
  Proposal propose(const ProposalRequest& request, const Worth&) override {
    Proposal proposal;
    const auto found = heard_.index.find(hash_of(request.text));
    if (found == heard_.index.end()) return proposal;
    const std::size_t length = 1 + n_asked_ % kLongest;
    const std::size_t n_right = n_asked_ / kLongest % (kLongest + 1);
    ++n_asked_;
    for (std::size_t i = 0; i < length; ++i) {
      const std::size_t at = found->second + 1 + i;
      const TokenId right = at < heard_.tokens.size() ? heard_.tokens[at] : 0;
      const auto wrong = static_cast<TokenId>((static_cast<std::size_t>(right) + 1) % n_vocab_);
      proposal.tokens.push_back(i == n_right ? wrong : right);
    }
    return proposal;
  }

 private:
  const Heard& heard_;
  std::size_t n_vocab_;
  std::size_t n_asked_ = 0;
};

}  // namespace

Status with_every_proposer(
    const std::shared_ptr<const Model>& model, KvType kv, std::size_t context,
    const std::function<Status(Speculation* speculation, std::string_view proposer)>& run) {
  LLM_RETURN_IF_ERROR(run(nullptr, ""));
  const auto run_with = [&](std::unique_ptr<Proposer> proposer, std::size_t length) {
    Speculation speculation(std::move(proposer), length);
    return run(&speculation, speculation.proposer());
  };
  Heard heard;
  LLM_RETURN_IF_ERROR(run_with(std::make_unique<Listener>(heard), 0));
  LLM_RETURN_IF_ERROR(run_with(std::make_unique<Prompter>(heard, model->config().n_vocab),
                               SpeculationPolicy::kMost));
  LLM_RETURN_IF_ERROR(run_with(std::make_unique<NgramProposer>(), kNgramLength));
  const auto layers = std::max<std::size_t>(1, model->config().n_layers / 2);
  LLM_TRY(auto draft, open_sequence(model->first_layers(layers), {.context = context, .kv = kv}));
  return run_with(std::make_unique<DraftProposer>(std::move(draft)), kDraftLength);
}

}  // namespace llm
