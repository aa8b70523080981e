#include <fmt/core.h>

#include <algorithm>
#include <random>
#include <span>
#include <utility>

#include "validate/selftest/mode_check.h"

namespace llm {
namespace {

/// Products of one long prefill.
constexpr double kLongWork = 3e10;
constexpr std::size_t kFarthest = 2048;
constexpr std::size_t kThreeChunks = 768;
/// Fed in one call: past ten blocks of 32 rows, with a rest that is odd in every tile.
constexpr std::size_t kOneCall = 337;
constexpr std::size_t kPastTenBlocks = 320;

class LongCheck : private PathCheck {
 public:
  explicit LongCheck(const ModePlan& plan) : PathCheck(plan), config_(plan.base->config()) {
    const double layer = products_per_token(config_, 1) - products_per_token(config_, 0);
    const auto layers_for = [&](std::size_t n) {
      return static_cast<std::size_t>(kLongWork / (layer * static_cast<double>(n)));
    };
    // What two layers cannot afford in f32 ends after three chunks.
    const bool far = plan.compute == Compute::kInt8 || layers_for(kFarthest) >= 2;
    const std::size_t last = far ? kFarthest : kThreeChunks;
    n_layers_ = std::clamp<std::size_t>(
        layers_for(last), std::min<std::size_t>(2, config_.n_layers), config_.n_layers);
    std::vector<std::size_t> begins = {0, 256, 512, kThreeChunks};
    if (far) begins.push_back(kFarthest);
    const double affordable = kDefinitionWork / products_per_token(config_, n_layers_) /
                              static_cast<double>(begins.size());
    const std::size_t size = std::clamp<std::size_t>(static_cast<std::size_t>(affordable), 2, 17);
    for (const std::size_t begin : begins) windows_.push_back({begin, begin + size});
    std::mt19937_64 random(1);
    draw_tokens(tokens_, windows_.back().end, config_.n_vocab, random);
    const std::string layers =
        n_layers_ == config_.n_layers ? "all layers" : fmt::format("layers 0 .. {}", n_layers_ - 1);
    scope_ = fmt::format("{} positions, {}: ", tokens_.size(), layers);
  }

  Result<PartOutcome> run() {
    LLM_TRY(model_, plan_.model(plan_.threads, {}, n_layers_));
    const auto others = other_isas(model_->isa());
    n_paths_ = 3 + others.size();
    LLM_TRY(const bool any, anchor("prefill against the definition (R1)", windows_, prefill()));
    if (!out_.anchored) LLM_RETURN_IF_ERROR(one_call());
    if (any) {
      if (out_.anchored) {
        LLM_RETURN_IF_ERROR(check(model_, small_batches()));
        LLM_RETURN_IF_ERROR(check_together({batches(), decode(), truncations()}));
      } else {
        LLM_RETURN_IF_ERROR(check(model_, batches()));
        out_.not_covered.push_back(
            fmt::format("{}: decode and truncation after prefill: prefill is wrong", plan_.name));
      }
      for (const Isa isa : others) {
        if (isa == Isa::kScalar) continue;
        LLM_TRY(const ModelPointer other, plan_.model(plan_.threads, isa, n_layers_));
        LLM_RETURN_IF_ERROR(check(other, briefly(prefill())));
      }
    }
    limits();
    return finish();
  }

 private:
  /// The first tokens, cut small: the rows of one long call by themselves, since what it stores is
  /// all that follows sees of it.
  Path small_batches() const {
    return {.name = fmt::format("one call of {} tokens as in batches of 32", kOneCall),
            .executor = {.kv = plan_.kv, .batch = 32},
            .feeds = {{.end = kOneCall, .rows = rows_of_call()}}};
  }

  /// The same where prefill is wrong: the call itself against the batches.
  Status one_call() {
    LogitTable definition = std::exchange(expected_, {});
    Path path = small_batches();
    LLM_TRY(const bool is_finite, expect(path.name, evaluate(model_, path, tokens_)));
    if (is_finite) {
      path.executor.batch = kOneCall;
      LLM_TRY(Judged judged, judge_path(model_, path));
      out_.results.push_back(std::move(judged.result));
    }
    expected_ = std::move(definition);
    plan_.report(++done_, n_paths_);
    return Ok{};
  }

  /// 337 tokens in one call, then up to each window, and the window, in one call.
  Path prefill() const {
    Path path{.name = "prefill", .executor = {.kv = plan_.kv}, .feeds = {{.end = kOneCall}}};
    std::size_t at = kOneCall;
    for (const Window& window : windows_) {
      if (window.begin < at) continue;
      path.feeds.push_back({.begin = at, .end = window.begin, .rows = LogitRows::kNone});
      path.feeds.push_back({.begin = window.begin, .end = window.end});
      at = window.end;
    }
    return path;
  }

  Path batches() const {
    Path path = briefly(prefill());
    path.name = fmt::format("batches of {}", kOneCall);
    path.executor.batch = kOneCall;
    return path;
  }

  LogitRows rows_of_call() const { return rows_of_long_call(config_, n_layers_); }

  /// The path again once prefill is known to be right, all rows of whose first call are compared.
  Path briefly(Path path) const {
    if (out_.anchored) path.feeds.front().rows = rows_of_call();
    return path;
  }

  /// The windows, and the last of 337 tokens, one by one, from the last window to the first: each
  /// stands on what was stored before.
  Path decode() const {
    std::vector<Window> singles = windows_;
    singles.insert(singles.begin() + 2, {kPastTenBlocks, kOneCall});
    Path path{.name = "decode after prefill",
              .executor = {.kv = plan_.kv},
              .feeds = {{.end = windows_.back().begin, .rows = LogitRows::kNone}}};
    for (auto window = singles.rbegin(); window != singles.rend(); ++window)
      path.feeds.push_back({.begin = window->begin, .end = window->end, .per_call = 1});
    return path;
  }

  Path truncations() const {
    Path path{.name = "truncated to each length mod 16 and around 256, then one token, then three",
              .executor = {.kv = plan_.kv},
              .feeds = {}};
    std::size_t at = 0;
    for (const auto& [begin, end] : {std::pair{16U, 32U}, std::pair{240U, 258U}}) {
      path.feeds.push_back({.begin = at, .end = begin, .rows = LogitRows::kNone});
      for (std::size_t cut = begin; cut < end; ++cut) {
        path.feeds.push_back(
            {.begin = cut, .end = cut + 1, .per_call = 1, .forgotten = 1 + cut % 3 * 3});
        path.feeds.push_back({.begin = cut + 1, .end = cut + 4});
      }
      at = end + 3;
    }
    return path;
  }

  /// Paths in a row on one sequence, which read the long text once. One that differs is looked for
  /// by itself.
  Status check_together(std::vector<Path> paths) {
    Path all = paths.front();
    for (const Path& path : std::span(paths).subspan(1)) {
      all.name += ", " + path.name;
      const bool reads =
          path.feeds.front().begin == 0 && path.feeds.front().rows == LogitRows::kNone;
      const std::size_t stored = all.feeds.back().end;
      all.feeds.insert(all.feeds.end(),
                       path.feeds.begin() + (reads && path.feeds.front().end <= stored ? 1 : 0),
                       path.feeds.end());
    }
    LLM_TRY(Judged judged, judge_path(model_, all));
    plan_.report(++done_, n_paths_);
    if (!judged.result.passed) {
      const std::size_t before = out_.results.size();
      for (const Path& path : paths) LLM_RETURN_IF_ERROR(check(model_, path));
      const auto found = std::span(out_.results).subspan(before);
      if (!std::ranges::all_of(found, &CheckResult::passed)) return Ok{};
    }
    out_.results.push_back(std::move(judged.result));
    return Ok{};
  }

  void limits() {
    if (config_.context > tokens_.size())
      out_.not_covered.push_back(
          fmt::format("{}: texts beyond {} positions (the context has {}; the check of kernel "
                      "attend goes further)",
                      plan_.name, tokens_.size(), config_.context));
    if (n_layers_ < config_.n_layers)
      out_.not_covered.push_back(fmt::format("{}: layers {} .. {} on long texts", plan_.name,
                                             n_layers_, config_.n_layers - 1));
  }

  const HyperParameters& config_;
  std::size_t n_layers_ = 0;
  std::vector<Window> windows_;
};

}  // namespace

Result<PartOutcome> check_long_texts(const ModePlan& plan) { return LongCheck(plan).run(); }

}  // namespace llm
