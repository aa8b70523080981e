#ifndef LLM_TESTS_ENGINE_FAKE_SESSION_H_
#define LLM_TESTS_ENGINE_FAKE_SESSION_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "tests/support/catch.h"

namespace llm {

/// A model without weights around a real tokenizer.
class FakeModel final : public Model {
 public:
  explicit FakeModel(Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {
    config_.n_vocab = tokenizer_.size();
  }
  const HyperParameters& config() const override { return config_; }
  const Tokenizer& tokenizer() const override { return tokenizer_; }
  const std::string& name() const override { return name_; }
  const std::string& chat_template() const override { return name_; }
  const std::vector<std::string>& warnings() const override { return warnings_; }
  std::uint64_t file_bytes() const override { return 0; }
  std::uint64_t weight_bytes() const override { return 0; }
  Isa isa() const override { return Isa::kScalar; }
  int threads() const override { return 1; }
  Compute compute() const override { return Compute::kF32; }

 private:
  HyperParameters config_;
  Tokenizer tokenizer_;
  std::string name_;
  std::vector<std::string> warnings_;
};

/// Predicts what it is told, and remembers what it was asked. The row of logits at a position is 10
/// for the predicted token, and its position in every other column.
class FakeSession final : public Session {
 public:
  /// The token that follows the text.
  using Predictor = std::function<TokenId(const std::vector<TokenId>& text)>;

  FakeSession(Tokenizer tokenizer, Predictor predictor, std::size_t context = 100,
              std::size_t batch = 100)
      : model_(std::move(tokenizer)), predictor_(std::move(predictor)) {
    options_.context = context;
    options_.batch = batch;
  }

  const Model& model() const override { return model_; }
  const SessionOptions& options() const override { return options_; }
  std::size_t position() const override { return text.size(); }
  std::size_t context() const override { return options_.context; }

  Result<std::span<const float>> evaluate(std::span<const TokenId> tokens,
                                          LogitRows rows) override {
    REQUIRE(!tokens.empty());
    REQUIRE(position() + tokens.size() <= context());
    calls.push_back(tokens.size());
    logits_.clear();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto at = static_cast<float>(position()) * 1e-3F;
      text.push_back(tokens[i]);
      const bool is_last = i + 1 == tokens.size();
      if (rows == LogitRows::kNone || (rows == LogitRows::kLast && !is_last)) continue;
      const std::size_t begin = logits_.size();
      logits_.resize(begin + model_.config().n_vocab, at);
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

 private:
  FakeModel model_;
  SessionOptions options_;
  Predictor predictor_;
  std::vector<float> logits_;
};

}  // namespace llm

#endif  // LLM_TESTS_ENGINE_FAKE_SESSION_H_
