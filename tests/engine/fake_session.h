#pragma once

#include "engine/generation/generate.h"
#include "engine/session.h"
#include "tests/support/test.h"

namespace llm {

/// Predicts what it is told, and remembers what it was asked. The row of logits at a position is 10
/// for the predicted token, and its position in every other column.
class FakeSession final : public Session {
 public:
  /// The token that follows the text.
  using Predictor = std::function<TokenId(const std::vector<TokenId>& text)>;

  FakeSession(Tokenizer tokenizer, Predictor predictor, std::size_t context = 100,
              std::size_t batch = 100)
      : tokenizer_(std::move(tokenizer)),
        predictor_(std::move(predictor)),
        context_(context),
        batch_(batch) {}

  const Tokenizer& tokenizer() const override {
    ++n_asked_for_tokenizer;
    return tokenizer_;
  }
  std::size_t n_vocab() const override { return tokenizer_.size(); }
  std::size_t position() const override { return text.size(); }
  std::size_t context() const override { return context_; }
  std::size_t batch() const override { return batch_; }

  Result<std::span<const float>> evaluate(std::span<const TokenId> tokens,
                                          LogitRows rows) override {
    REQUIRE(!tokens.empty());
    REQUIRE(position() + tokens.size() <= context());
    if (std::ranges::find(tokens, refused) != tokens.end()) {
      return Error{.code = ErrorCode::kNonFinite, .field = "logits", .message = "found NaN"};
    }
    calls.push_back(tokens.size());
    logits_.clear();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto at = static_cast<float>(position()) * 1e-3F;
      text.push_back(tokens[i]);
      const bool is_last = i + 1 == tokens.size();
      if (rows == LogitRows::kNone || (rows == LogitRows::kLast && !is_last)) continue;
      const std::size_t begin = logits_.size();
      logits_.resize(begin + n_vocab(), at);
      logits_[begin + static_cast<std::size_t>(predictor_(text))] = 10;
    }
    return std::span<const float>(logits_);
  }

  void truncate(std::size_t n_positions) override {
    REQUIRE(n_positions <= position());
    text.resize(n_positions);
  }
  void set_probe(ProbeSink*) override {}

  std::vector<TokenId> text;       ///< every evaluated token
  std::vector<std::size_t> calls;  ///< tokens of each evaluate()
  TokenId refused = -1;            ///< a token whose logits are not finite
  mutable std::size_t n_asked_for_tokenizer = 0;

 private:
  Tokenizer tokenizer_;
  Predictor predictor_;
  std::size_t context_;
  std::size_t batch_;
  std::vector<float> logits_;
};

/// Goes on with the next id.
inline TokenId counting(const std::vector<TokenId>& text) { return text.back() + 1; }

inline GenerateOptions greedy(std::optional<std::size_t> max_tokens = {}) {
  GenerateOptions options;
  options.sampler.temperature = 0;
  options.max_tokens = max_tokens;
  return options;
}

}  // namespace llm
