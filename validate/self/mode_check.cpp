#include "validate/self/mode_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "validate/reference/diff/likelihood.h"
#include "validate/self/anchor.h"

namespace llm {
namespace {

/// Perplexity of the text itself, exp(mean NLL) of each token given those before it.
double perplexity(const LogitTable& table, std::span<const TokenId> tokens) {
  double sum = 0;
  for (std::size_t t = 0; t + 1 < tokens.size(); ++t)
    sum += negative_log_likelihood(table.row(t), tokens[t + 1]);
  return std::exp(sum / static_cast<double>(std::max<std::size_t>(1, tokens.size() - 1)));
}

class ModeCheck {
 public:
  ModeCheck(const ModePlan& plan, std::span<const TokenId> tokens) : plan_(plan), tokens_(tokens) {}

  /// Finds what to compare with. @return whether there is anything
  Result<bool> anchor() {
    LLM_TRY(model_, plan_.model(plan_.threads));
    const double affordable =
        kDefinitionWork / products_per_token(model_->config(), model_->config().n_layers);
    const Window window{0, std::min(tokens_.size(), std::max<std::size_t>(
                                                        2, static_cast<std::size_t>(affordable)))};
    const std::string name = plan_.title(model_->isa(), "the definition in plain loops (R1)");
    auto definition = by_definition(model_, plan_.kv, tokens_, {&window, 1});
    if (!definition.ok()) {
      auto failed = nonfinite_check(name, definition.error());
      if (!failed) return std::move(definition).error();
      failed->detail += "; the definition's own, so it is the weights: too large for f32";
      out_.results.push_back(*std::move(failed));
      out_.not_covered.push_back(plan_.name + ": paths, since the definition gives no numbers");
      out_.anchored = false;
      return false;
    }
    expected_ = std::move(definition).value();
    const auto prefill = [&] { return evaluate(model_, all_at_once(tokens_.size()), tokens_); };
    LLM_TRY(Judged judged, judge(name, expected_, prefill));
    if (judged.result.passed) {
      prefill_ = judged.table;
      expected_.complete_with(judged.table);
    } else {
      LLM_RETURN_IF_ERROR(locate(judged, window));
      tokens_ = tokens_.first(window.end);
      out_.anchored = false;
    }
    judged.result.detail += fmt::format(" ({} tokens by the definition)", window.end);
    anchor_result_ = out_.results.size();
    out_.results.push_back(judged.result);
    fault_ = PrefillFault(std::move(judged));
    return true;
  }

  Status run(const Lengths& lengths) {
    const auto others = other_isas(model_->isa());
    n_paths_ = 8 + 2 * others.size() + std::size(kTeams);
    LLM_RETURN_IF_ERROR(ways_to_split(lengths));
    for (const Isa isa : others) {
      LLM_TRY(const ModelPointer other, plan_.model(plan_.threads, isa));
      const std::size_t n = isa == Isa::kScalar ? lengths.scalar : lengths.usual;
      LLM_RETURN_IF_ERROR(check(other, all_at_once(n)));
      LLM_RETURN_IF_ERROR(check(other, decode(std::min(n, lengths.split))));
    }
    for (const int threads : kTeams) {
      LLM_TRY(const ModelPointer other, plan_.model(threads));
      Path path = all_at_once(lengths.split);
      path.name = fmt::format("{} thread{}", threads, threads == 1 ? "" : "s");
      LLM_RETURN_IF_ERROR(check(other, path));
    }
    return Ok{};
  }

  Status run_briefly() {
    LLM_RETURN_IF_ERROR(check(model_, decode(tokens_.size())));
    return tokens_.size() < 2 ? Status(Ok{}) : check(model_, cut_back(tokens_.size()));
  }

  PartOutcome finish() {
    if (fault_.is_there()) out_.results[anchor_result_].detail += fault_.count();
    return std::move(out_);
  }

 private:
  /// Adds to prefill's verdict where it leaves the definition.
  Status locate(Judged& judged, Window window) {
    const TableDifference difference = compare_tables(judged.table, expected_);
    if (difference.different == 0) return Ok{};  // not finite, and located
    window.end =
        std::max<std::size_t>(difference.position + 1, std::min<std::size_t>(window.end, 2));
    auto op = first_wrong_op(model_, plan_.kv, tokens_, window);
    if (!op.ok() && op.error().code != ErrorCode::kNonFinite) return std::move(op).error();
    if (op.ok()) judged.result.detail += "; " + *op;
    return Ok{};
  }

  Status ways_to_split(const Lengths& n) {
    for (const std::size_t batch : {1U, 2U, 7U, 32U}) {
      Path path = all_at_once(batch == 32 ? n.usual : n.split);
      path.name = fmt::format("batches of {}", batch);
      path.executor.batch = batch;
      LLM_RETURN_IF_ERROR(check(model_, path));
    }
    LLM_RETURN_IF_ERROR(check(model_, decode(n.usual)));
    Path recomputed = decode(n.recomputed);
    recomputed.name = "without a cache, one token per call";
    recomputed.sequence.use_cache = false;
    LLM_RETURN_IF_ERROR(check(model_, recomputed));
    if (tokens_.size() < 2) return Ok{};
    LLM_RETURN_IF_ERROR(check(model_, cut_back(n.usual)));
    Path last = all_at_once(n.split);
    last.name = "the last row of logits only";
    last.feeds[0].rows = LogitRows::kLast;
    return check(model_, last);
  }

  Path all_at_once(std::size_t n) const {
    return {.name = "prefill",
            .executor = {.kv = plan_.kv},
            .feeds = {{.end = std::min(n, tokens_.size())}}};
  }
  Path cut_back(std::size_t n) const {
    Path cut = all_at_once(n);
    cut.name = "cut back by half and fed anew";
    const std::size_t end = cut.feeds[0].end;
    cut.feeds = {{.end = end / 2}, {.begin = end / 2, .end = end, .forgotten = end - end / 2}};
    return cut;
  }
  Path decode(std::size_t n) const {
    Path path = all_at_once(n);
    path.name = kDecode;
    path.feeds[0].per_call = 1;
    return path;
  }

  Status check(const ModelPointer& model, const Path& path) {
    LLM_TRY(Judged judged, judge(plan_.title(model->isa(), path.name), expected_,
                                 [&] { return evaluate(model, path, tokens_); }));
    plan_.report(++done_, n_paths_);
    if (fault_.explains(judged)) return Ok{};
    out_.results.push_back(std::move(judged.result));
    const bool whole = judged.table.positions.size() == tokens_.size();
    if (path.name == kDecode && model == model_ && whole && !prefill_.values.empty())
      compare_perplexity(judged.table);
    return Ok{};
  }

  void compare_perplexity(const LogitTable& decoded) {
    const double a = perplexity(prefill_, tokens_);
    const double b = perplexity(decoded, tokens_);
    out_.results.push_back(
        {fmt::format("{}: perplexity by prefill and by decode", plan_.name),
         std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b),
         fmt::format("{:.9g} and {:.9g} over {} tokens", a, b, tokens_.size() - 1)});
  }

  const ModePlan& plan_;
  std::span<const TokenId> tokens_;
  ModelPointer model_;
  LogitTable expected_;
  LogitTable prefill_;  ///< when it is right
  PrefillFault fault_;
  std::size_t anchor_result_ = 0;
  std::size_t done_ = 0;
  std::size_t n_paths_ = 1;
  PartOutcome out_;
};

}  // namespace

Result<PartOutcome> check_paths(const ModePlan& plan, const Lengths& lengths,
                                std::span<const TokenId> tokens) {
  ModeCheck check(plan, tokens);
  LLM_TRY(const bool any, check.anchor());
  if (any) LLM_RETURN_IF_ERROR(check.run(lengths));
  return check.finish();
}

Result<PartOutcome> check_other_cache(const ModePlan& plan, std::span<const TokenId> tokens) {
  ModeCheck check(plan, tokens);
  LLM_TRY(const bool any, check.anchor());
  if (any) LLM_RETURN_IF_ERROR(check.run_briefly());
  return check.finish();
}

}  // namespace llm
