#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/float_environment.h"
#include "base/mutant.h"
#include "engine/forward/forward.h"
#include "engine/forward/kv_cache.h"
#include "engine/forward/reference/forward.h"
#include "engine/loaded_model.h"

namespace llm {
namespace {

std::size_t first_nonfinite(std::span<const float> values) {
  const auto found =
      std::find_if(values.begin(), values.end(), [](float x) { return !std::isfinite(x); });
  return static_cast<std::size_t>(found - values.begin());
}

/// Remembers the first activation that is NaN or Inf.
class NonFiniteFinder final : public ProbeSink {
 public:
  void begin_step(std::span<const TokenId>, std::size_t first_position) override {
    first_position_ = first_position;
  }
  void tap(int layer, std::string_view name, std::span<const float> values, std::size_t features,
           std::size_t first_token) override {
    if (!where_.empty()) return;
    const std::size_t index = first_nonfinite(values);
    if (index == values.size()) return;
    where_ = layer == kGlobal ? std::string(name) : fmt::format("blk.{}.{}", layer, name);
    position_ = first_position_ + first_token + index / features;
  }

  Error error() const {
    return Error{.code = ErrorCode::kNonFinite,
                 .field = where_.empty() ? "logits" : where_,
                 .message = fmt::format(
                     "found NaN or Inf at token position {}, need finite numbers", position_),
                 .hint = "the weights are corrupt or too large for f32"};
  }

 private:
  std::size_t first_position_ = 0;
  std::size_t position_ = 0;
  std::string where_;
};

class SessionImpl final : public Session {
 public:
  SessionImpl(std::shared_ptr<const LoadedModel> model, const SessionOptions& options,
              KvCache cache, Forward forward)
      : model_(std::move(model)),
        options_(options),
        cache_(std::move(cache)),
        forward_(std::move(forward)),
        reference_(model_->config(), model_->weights(), model_->rope(), model_->compute()) {}

  const Model& model() const override { return *model_; }
  const SessionOptions& options() const override { return options_; }
  std::size_t position() const override { return tokens_.size(); }
  std::size_t context() const override { return options_.context; }

  Result<std::span<const float>> evaluate(std::span<const TokenId> tokens,
                                          LogitRows rows) override {
    LLM_RETURN_IF_ERROR(check(tokens));
    const FloatEnvironment contract;
    const std::size_t old_position = position();
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    // Without the cache every earlier position is computed anew; the code below is the same.
    const std::size_t from = options_.use_cache ? old_position : 0;
    const std::size_t n_rows = rows == LogitRows::kAll    ? tokens.size()
                               : rows == LogitRows::kLast ? std::min<std::size_t>(1, tokens.size())
                                                          : 0;
    const std::size_t n_vocab = model_->config().n_vocab;
    logits_.resize(n_rows * n_vocab);
    run(from, n_rows, probe_);
    const std::size_t bad = first_nonfinite(logits_);
    if (bad < logits_.size()) {
      // From the start: the fault may have come into the cache when no logits were asked for.
      NonFiniteFinder finder;
      run(0, n_rows, &finder);
      tokens_.resize(old_position);
      return finder.error();
    }
    return std::span<const float>(logits_);
  }

  void truncate(std::size_t n_positions) override {
    LLM_CHECK(n_positions <= position());
    tokens_.resize(n_positions);
  }

  void set_probe(ProbeSink* sink) override { probe_ = sink; }

 private:
  Status check(std::span<const TokenId> tokens) const {
    const auto n_vocab = static_cast<TokenId>(model_->config().n_vocab);
    for (const TokenId id : tokens) {
      if (id < 0 || id >= n_vocab) {
        return Error{.code = ErrorCode::kUsage,
                     .field = "token id",
                     .message = fmt::format("found {}, need 0..{}", id, n_vocab - 1)};
      }
    }
    if (tokens.size() > context() - position()) {
      return Error{
          .code = ErrorCode::kResource,
          .field = "context",
          .message = fmt::format("found {} tokens after position {}, need at most {} in all",
                                 tokens.size(), position(), context()),
          .hint = "raise -c or shorten the prompt"};
    }
    return Ok{};
  }

  /// Evaluates tokens_[from, end) in batches; the logits of the last n_rows go to logits_.
  void run(std::size_t from, std::size_t n_rows, ProbeSink* probe) {
    const std::size_t n_vocab = model_->config().n_vocab;
    const std::size_t first_row = tokens_.size() - n_rows;
    for (std::size_t begin = from; begin < tokens_.size(); begin += options_.batch) {
      const std::size_t end = std::min(begin + options_.batch, tokens_.size());
      const std::size_t wanted = end - std::clamp(first_row, begin, end);
      const std::size_t filled = std::max(first_row, end - wanted) - first_row;
      const auto tokens = std::span(tokens_).subspan(begin, end - begin);
      const auto logits = std::span(logits_).subspan(filled * n_vocab, wanted * n_vocab);
      if (options_.reference) {
        reference_.run(tokens, begin, cache_, logits, probe);
      } else {
        forward_.run(tokens, LLM_MUTANT("batch_position") ? 0 : begin, cache_, logits, probe);
      }
    }
  }

  std::shared_ptr<const LoadedModel> model_;
  SessionOptions options_;
  KvCache cache_;
  Forward forward_;
  reference::Forward reference_;
  std::vector<TokenId> tokens_;
  std::vector<float> logits_;
  ProbeSink* probe_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<Session>> Session::create(std::shared_ptr<const Model> model,
                                                 const SessionOptions& options) {
  auto loaded = std::dynamic_pointer_cast<const LoadedModel>(std::move(model));
  LLM_CHECK(loaded != nullptr && options.batch > 0);
  SessionOptions chosen = options;
  if (chosen.context == 0) chosen.context = loaded->config().context;
  LLM_TRY(KvCache cache, KvCache::create(loaded->config(), chosen.context, chosen.kv));
  chosen.batch = std::min(chosen.batch, chosen.context);
  LLM_TRY(Forward forward, Forward::create(loaded->config(), loaded->weights(), loaded->rope(),
                                           *kernel_table(loaded->isa()), loaded->compute(),
                                           loaded->threads(), chosen.batch, chosen.context));
  return std::unique_ptr<Session>(std::make_unique<SessionImpl>(
      std::move(loaded), chosen, std::move(cache), std::move(forward)));
}

}  // namespace llm
