#include "validate/selftest/mode_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "validate/reference/diff/likelihood.h"

namespace llm {
namespace {

/// Sizes of teams of threads that every mode is run with.
constexpr int kTeamsOfMode[] = {1, 2, 3, 7};

/// Perplexity of the text itself, exp(mean NLL) of each token given those before it.
double perplexity(const LogitTable& table, std::span<const TokenId> tokens) {
  double sum = 0;
  for (std::size_t t = 0; t + 1 < tokens.size(); ++t)
    sum += negative_log_likelihood(table.row(t), tokens[t + 1]);
  return std::exp(sum / static_cast<double>(std::max<std::size_t>(1, tokens.size() - 1)));
}

class ModeCheck : private PathCheck {
 public:
  ModeCheck(const ModePlan& plan, std::span<const TokenId> tokens) : PathCheck(plan) {
    tokens_.assign(tokens.begin(), tokens.end());
  }

  /// @param lengths  null: as few ways as another type of cache needs
  Result<PartOutcome> run(const Lengths* lengths) {
    LLM_TRY(model_, plan_.model(plan_.threads));
    const double affordable =
        kDefinitionWork / products_per_token(model_->config(), model_->config().n_layers);
    const auto most = std::max<std::size_t>(2, static_cast<std::size_t>(affordable));
    const Window window{0, std::min(tokens_.size(), most)};
    const auto others = other_isas(model_->isa());
    n_paths_ = lengths == nullptr ? 3 : 9 + 2 * others.size() + std::size(kTeamsOfMode);
    LLM_TRY(const bool any, anchor("the definition in plain loops (R1)", {&window, 1},
                                   all_at_once(tokens_.size())));
    if (!any) {
      out_.not_covered.push_back(plan_.name + ": paths, since the definition gives no numbers");
      return finish();
    }
    out_.results[anchor_result_].detail +=
        fmt::format(" ({} tokens by the definition)", window.end);
    if (!out_.anchored) tokens_.resize(window.end);
    if (lengths == nullptr) {
      LLM_RETURN_IF_ERROR(check_decode(tokens_.size()));
      LLM_RETURN_IF_ERROR(check_cut_back(tokens_.size()));
      return finish();
    }
    LLM_RETURN_IF_ERROR(ways_to_split(*lengths));
    for (const Isa isa : others) {
      LLM_TRY(const ModelPointer other, plan_.model(plan_.threads, isa));
      const std::size_t n = isa == Isa::kScalar ? lengths->scalar : lengths->usual;
      LLM_RETURN_IF_ERROR(check(other, all_at_once(n)));
      LLM_RETURN_IF_ERROR(check(other, decode(std::min(n, lengths->split))));
    }
    for (const int threads : kTeamsOfMode) {
      LLM_TRY(const ModelPointer other, plan_.model(threads));
      Path path = all_at_once(lengths->split);
      path.name = fmt::format("{} thread{}", threads, threads == 1 ? "" : "s");
      LLM_RETURN_IF_ERROR(check(other, path));
    }
    return finish();
  }

 private:
  Status ways_to_split(const Lengths& n) {
    for (const std::size_t batch : {1U, 2U, 7U, 32U}) {
      Path path = all_at_once(batch == 32 ? n.usual : n.split);
      path.name = fmt::format("batches of {}", batch);
      path.executor.batch = batch;
      LLM_RETURN_IF_ERROR(check(model_, path));
    }
    LLM_RETURN_IF_ERROR(check_decode(n.usual));
    Path recomputed = decode(n.recomputed);
    recomputed.name = "without a cache, one token per call";
    recomputed.sequence.use_cache = false;
    LLM_RETURN_IF_ERROR(check(model_, recomputed));
    LLM_RETURN_IF_ERROR(check_cut_back(n.usual));
    if (tokens_.size() < 2) return Ok{};
    Path last = all_at_once(n.split);
    last.name = "the last row of logits only";
    last.feeds[0].rows = LogitRows::kLast;
    LLM_RETURN_IF_ERROR(check(model_, last));
    return Ok{};
  }

  Path all_at_once(std::size_t n) const {
    return {.name = "prefill",
            .executor = {.kv = plan_.kv},
            .feeds = {{.end = std::min(n, tokens_.size())}}};
  }
  Path decode(std::size_t n) const {
    Path path = all_at_once(n);
    path.name = "one token per call (decode)";
    path.feeds[0].per_call = 1;
    return path;
  }

  Status check_cut_back(std::size_t n) {
    Path cut = all_at_once(n);
    cut.name = "truncated to half and evaluated again";
    const std::size_t end = cut.feeds[0].end;
    cut.feeds = {{.end = end / 2}, {.begin = end / 2, .end = end, .forgotten = end - end / 2}};
    if (end > 1) LLM_RETURN_IF_ERROR(check(model_, cut));
    return Ok{};
  }

  /// The path, and where it has all of the text and prefill is right, the perplexities of both.
  Status check_decode(std::size_t n) {
    LLM_TRY(const LogitTable decoded, check(model_, decode(n)));
    if (decoded.positions.size() != tokens_.size() || !out_.anchored) return Ok{};
    const double a = perplexity(expected_, tokens_);
    const double b = perplexity(decoded, tokens_);
    out_.results.push_back(
        {fmt::format("{}: perplexity by prefill and by decode", plan_.name),
         std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b),
         fmt::format("{:.9g} and {:.9g} over {} tokens", a, b, tokens_.size() - 1)});
    return Ok{};
  }
};

}  // namespace

Result<PartOutcome> check_paths(const ModePlan& plan, const Lengths& lengths,
                                std::span<const TokenId> tokens) {
  return ModeCheck(plan, tokens).run(&lengths);
}

Result<PartOutcome> check_other_cache(const ModePlan& plan, std::span<const TokenId> tokens) {
  return ModeCheck(plan, tokens).run(nullptr);
}

}  // namespace llm
