// The check of the context shift passes, and notices a session that keeps what it should forget.

#include "tests/support/embedded_model.h"
#include "tests/support/test.h"
#include "validate/self/text_checks.h"

namespace llm {
namespace {

/// A sequence that does to truncations and tokens what it is told.
class WrongSession final : public Session {
 public:
  enum class Fault { kStaleRows, kPositionsKept };

  WrongSession(std::unique_ptr<Sequence> right, Fault fault)
      : right_(std::move(right)), fault_(fault) {}

  const Tokenizer& tokenizer() const override { return right_->tokenizer(); }
  std::size_t n_vocab() const override { return right_->n_vocab(); }
  std::size_t position() const override { return right_->position() - hidden_; }
  std::size_t context() const override { return right_->context() - kSpare; }
  std::size_t batch() const override { return right_->batch(); }
  void set_probe(ProbeSink* sink) override { right_->set_probe(sink); }

  Result<std::span<const float>> evaluate(std::span<const TokenId> tokens,
                                          LogitRows rows) override {
    if (stale_ == 0) return right_->evaluate(tokens, rows);
    // The first rows stay those of what was there before.
    std::vector<TokenId> fed(tokens.begin(), tokens.end());
    for (TokenId& token : fed) {
      if (stale_ == 0) break;
      token = before_[before_.size() - stale_--];
    }
    return right_->evaluate(fed, rows);
  }

  void truncate(std::size_t n) override {
    const auto held = right_->tokens();
    if (fault_ == Fault::kStaleRows && n == 0 && held.size() > 4) {
      before_.assign(held.begin(), held.begin() + 4);
      stale_ = before_.size();
    }
    if (fault_ == Fault::kPositionsKept && n == 0 && hidden_ == 0 && held.size() > 4) {
      hidden_ = 1;  // a row of the forgotten text stays in front
      return right_->truncate(1);
    }
    right_->truncate(n + hidden_);
  }

  static constexpr std::size_t kSpare = 2;

 private:
  std::unique_ptr<Sequence> right_;
  Fault fault_;
  std::vector<TokenId> before_;
  std::size_t stale_ = 0;
  std::size_t hidden_ = 0;
};

ShiftCheckOptions small() { return {.contexts = {24}, .without_bos = true, .open = {}}; }

TEST_CASE("a context shift leaves nothing of what was forgotten", "[self][shift]") {
  const auto loaded = test::embedded(1, "fable-3m-f16.gguf");
  ShiftCheckOptions options;
  options.contexts = {9, 24, 300};
  const auto results = test::require_ok(check_context_shift(loaded, KvType::kF16, options));
  CHECK(results.size() == 4);
  for (const CheckResult& result : results) {
    CAPTURE(result.name, result.detail);
    CHECK(result.passed);
  }
}

TEST_CASE("a session that keeps stale rows is noticed", "[self][shift]") {
  const auto loaded = test::embedded(1, "fable-3m-f16.gguf");
  using Fault = WrongSession::Fault;
  for (const Fault fault : {Fault::kStaleRows, Fault::kPositionsKept}) {
    ShiftCheckOptions options = small();
    options.open = [&](const ExecutorOptions& executor) -> Result<std::unique_ptr<Session>> {
      ExecutorOptions more = executor;
      more.context += WrongSession::kSpare;
      LLM_TRY(auto sequence, open_sequence(loaded, more));
      return std::unique_ptr<Session>(std::make_unique<WrongSession>(std::move(sequence), fault));
    };
    const auto results = test::require_ok(check_context_shift(loaded, KvType::kF16, options));
    for (const CheckResult& result : results) {
      CAPTURE(result.name, result.detail);
      CHECK_FALSE(result.passed);
      CHECK(result.detail.find("not those of a new session fed") != std::string::npos);
    }
  }
}

}  // namespace
}  // namespace llm
