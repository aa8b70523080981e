#include "validate/self/rehearsal.h"

#include <functional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace llm {

struct Rehearsal::Memory {
  std::size_t n_vocab = 0;
  std::unordered_map<std::size_t, std::size_t> index;  ///< of a text among `tokens`, its last one's
  std::vector<TokenId> tokens;  ///< last ones of the texts that proposals were asked for, in order
};

namespace {

constexpr std::size_t kLongest = 7;

std::size_t hash_of(std::span<const TokenId> text) {
  return std::hash<std::string_view>()(
      {reinterpret_cast<const char*>(text.data()), text.size_bytes()});
}

class Listener final : public Proposer {
 public:
  explicit Listener(std::shared_ptr<Rehearsal::Memory> memory) : memory_(std::move(memory)) {}

  std::string_view name() const override { return "none"; }
  Proposal propose(const ProposalRequest& request, const Worth&) override {
    memory_->index[hash_of(request.text)] = memory_->tokens.size();
    memory_->tokens.push_back(request.text.back());
    return {};
  }

 private:
  std::shared_ptr<Rehearsal::Memory> memory_;
};

class Prompter final : public Proposer {
 public:
  explicit Prompter(std::shared_ptr<const Rehearsal::Memory> memory) : memory_(std::move(memory)) {}

  std::string_view name() const override { return "right and wrong ones"; }
  Proposal propose(const ProposalRequest& request, const Worth&) override {
    Proposal proposal;
    const auto found = memory_->index.find(hash_of(request.text));
    if (found == memory_->index.end()) return proposal;
    const std::size_t length = 1 + n_asked_ % kLongest;
    const std::size_t n_right = n_asked_ / kLongest % (kLongest + 1);
    ++n_asked_;
    for (std::size_t i = 0; i < length; ++i) {
      const std::size_t at = found->second + 1 + i;
      const TokenId right = at < memory_->tokens.size() ? memory_->tokens[at] : 0;
      const auto wrong =
          static_cast<TokenId>((static_cast<std::size_t>(right) + 1) % memory_->n_vocab);
      proposal.tokens.push_back(i == n_right ? wrong : right);
    }
    return proposal;
  }

 private:
  std::shared_ptr<const Rehearsal::Memory> memory_;
  std::size_t n_asked_ = 0;
};

}  // namespace

Rehearsal::Rehearsal(std::size_t n_vocab) : memory_(std::make_shared<Memory>()) {
  memory_->n_vocab = n_vocab;
}

Rehearsal::~Rehearsal() = default;

std::unique_ptr<Proposer> Rehearsal::listener() { return std::make_unique<Listener>(memory_); }

std::unique_ptr<Proposer> Rehearsal::prompter() const {
  return std::make_unique<Prompter>(memory_);
}

}  // namespace llm
