#include "validate/selftest/sequence_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <random>
#include <span>
#include <string>
#include <utility>

#include "validate/selftest/text_path.h"

namespace llm {
namespace {

constexpr std::size_t kMostAtOnce = 5;
constexpr std::size_t kMostPrefill = 40;
constexpr std::size_t kPage = KvPool::kPagePositions;

/// How the sequences share the executor.
struct Mix {
  const char* name;
  bool preempts;
  bool share_prefix;
};
constexpr Mix kMixes[] = {{"pages for all", false, false},
                          {"preempted", true, false},
                          {"prefixes shared", false, true},
                          {"prefixes shared, preempted", true, true}};

/// One text; `expected` are the logits of its tokens from `begin` on, computed alone. Its tokens
/// before are the common ones. Every second text goes its own way inside the common page: it is fed
/// all of that, goes back and writes into a page that others share.
struct Text {
  std::size_t begin = 0;
  std::vector<TokenId> ids;
  std::vector<float> expected;
};
constexpr std::size_t kTakenBack = 5;

class SequenceCheck {
 public:
  SequenceCheck(const std::shared_ptr<const Model>& model, KvType kv,
                const SequenceCheckOptions& options)
      : model_(model),
        kv_(kv),
        options_(options),
        random_(options.seed),
        groups_(model->config(), kv) {
    const std::size_t context = model_->config().context;
    n_common_ = context > kPage + 1 ? kPage : 0;
    context_ = std::min(context, n_common_ + options_.most_new);
  }

  Result<std::vector<CheckResult>> run() {
    LLM_RETURN_IF_ERROR(draw_texts());
    std::vector<CheckResult> results;
    for (const Mix& mix : kMixes) {
      const bool is_end = &mix == &kMixes[0] || &mix == &kMixes[3];
      if (!options_.every_mix && !is_end) continue;
      if (mix.share_prefix && n_common_ == 0) continue;
      LLM_TRY(CheckResult result, run_mix(mix));
      results.push_back(std::move(result));
      if (options_.progress) options_.progress("sequences", results.size(), std::size(kMixes));
    }
    for (const std::size_t n_pages : {1U, 2U}) {
      LLM_TRY(CheckResult result, run_whole_pages(n_pages));
      results.push_back(std::move(result));
    }
    return results;
  }

 private:
  /// A prompt of whole pages that are published when others are fed it: what they take over are
  /// keys, values and states, and the row of logits is still to be computed. Then one of them
  /// writes others into the last page, which nobody may take for the prompt's any more; and a
  /// prompt comes whose last page alone has the same tokens.
  Result<CheckResult> run_whole_pages(std::size_t n_pages) {
    const std::size_t n = n_pages * kPage;
    const auto drawn = [&](std::size_t size) {
      std::vector<TokenId> ids;
      draw_tokens(ids, size, model_->config().n_vocab, random_);
      return ids;
    };
    const std::vector<TokenId> prompt = drawn(n);
    std::vector<TokenId> other = prompt;
    std::ranges::copy(drawn(n - kPage), other.begin());
    const std::vector<TokenId> end = drawn(kTakenBack);
    const ExecutorOptions options{
        .context = n + 1, .kv = kv_, .batch = 64, .kv_pages = (4 * n_pages + 5) * groups_.size()};
    std::string difference;
    LLM_TRY(const auto alone, open_sequence(model_, options));
    LLM_TRY(const auto executor, Executor::create(model_, options));
    LLM_TRY(const auto between, Executor::open(executor, {}));
    const auto feed_both = [&](Sequence& sequence, std::string_view which,
                               std::span<const TokenId> ids) -> Status {
      alone->truncate(0);
      const auto before = sequence.tokens();
      std::vector<TokenId> all(before.begin(), before.end());
      all.insert(all.end(), ids.begin(), ids.end());
      LLM_TRY(const auto expected, alone->evaluate(all, LogitRows::kLast));
      // Another row where the last one lies: one that nobody computes must not be right by that.
      between->truncate(0);
      LLM_RETURN_IF_ERROR(between->evaluate(end, LogitRows::kLast));
      LLM_TRY(const auto logits, sequence.evaluate(ids, LogitRows::kLast));
      if (difference.empty() && !std::ranges::equal(std::as_bytes(logits), std::as_bytes(expected)))
        difference = fmt::format("{} differs from its separate run", which);
      return Ok{};
    };
    std::vector<std::unique_ptr<Sequence>> sequences;
    for (const char* which : {"the first", "the second with its pages", "the third"}) {
      LLM_TRY(auto sequence, Executor::open(executor, {.share_prefix = true}));
      sequence->set_checkpoints(std::array{n - 1});
      LLM_RETURN_IF_ERROR(feed_both(*sequence, which, prompt));
      sequences.push_back(std::move(sequence));
    }
    sequences.resize(1);
    sequences[0]->truncate(n - kTakenBack);
    // Fewer than it took back: the page is not whole, and not published for them.
    LLM_RETURN_IF_ERROR(
        feed_both(*sequences[0], "one that goes back into its page", std::span(end).first(3)));
    LLM_TRY(const auto again, Executor::open(executor, {.share_prefix = true}));
    LLM_RETURN_IF_ERROR(feed_both(*again, "one after others are in its page", prompt));
    other.push_back(end[0]);
    LLM_TRY(const auto unlike, Executor::open(executor, {.share_prefix = true}));
    for (const auto& ids : {std::span(other).first(kPage), std::span(other).subspan(kPage)})
      LLM_RETURN_IF_ERROR(feed_both(*unlike, "one that shares only its last page", ids));
    return CheckResult{
        fmt::format("prompts of {} tokens whose pages are shared", n), difference.empty(),
        difference.empty() ? fmt::format("{} pages shared", executor->pool().pages_shared())
                           : difference};
  }

  std::size_t draw(std::size_t most) { return 1 + random_() % most; }

  Status draw_texts() {
    const std::size_t n_vocab = model_->config().n_vocab;
    common_.resize(n_common_);
    const auto token = [&] { return static_cast<TokenId>(random_() % n_vocab); };
    std::generate(common_.begin(), common_.end(), token);
    LLM_TRY(const auto alone, open_sequence(model_, {.context = context_, .kv = kv_}));
    for (std::size_t i = 0; i < options_.n_sequences; ++i) {
      Text text{i % 2 == 1 && n_common_ > 0 ? n_common_ - kTakenBack : n_common_, common_, {}};
      text.ids.resize(n_common_ + draw(context_ - n_common_));
      std::generate(text.ids.begin() + static_cast<std::ptrdiff_t>(text.begin), text.ids.end(),
                    token);
      alone->truncate(0);
      LLM_RETURN_IF_ERROR(alone->evaluate(std::span(text.ids).first(text.begin), LogitRows::kNone));
      const auto own = std::span(text.ids).subspan(text.begin);
      LLM_TRY(const auto logits, alone->evaluate(own, LogitRows::kAll));
      text.expected.assign(logits.begin(), logits.end());
      texts_.push_back(std::move(text));
    }
    return Ok{};
  }

  Result<CheckResult> run_mix(const Mix& mix) {
    constexpr std::size_t kBatch = 64;
    const std::size_t each = groups_.most_pages(context_, kBatch);
    const std::size_t n_held = mix.preempts ? std::min(kMostAtOnce, texts_.size()) : texts_.size();
    LLM_TRY(
        const auto executor,
        Executor::create(
            model_, {.context = context_, .kv = kv_, .batch = kBatch, .kv_pages = each * n_held}));
    std::vector<std::unique_ptr<Sequence>> sequences;
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      LLM_TRY(auto sequence, Executor::open(executor, {.share_prefix = mix.share_prefix}));
      sequences.push_back(std::move(sequence));
    }
    std::string difference;
    n_preempted_ = 0;
    LLM_RETURN_IF_ERROR(feed(*executor, sequences, n_held, difference));
    std::size_t n_logits = 0;
    for (const Text& text : texts_) n_logits += text.expected.size();
    const std::string facts =
        fmt::format("{} logits, {} passes, {} preemptions, {} pages shared", n_logits,
                    executor->passes(), n_preempted_, executor->pool().pages_shared());
    return CheckResult{fmt::format("{} sequences at once, {}", texts_.size(), mix.name),
                       difference.empty(), difference.empty() ? facts : difference};
  }

  /// Random sequences, random parts, until all are done. @param n_held  that hold pages at once;
  /// who is not at work gives back its own, and is evaluated anew when it is next
  Status feed(Executor& executor, std::span<const std::unique_ptr<Sequence>> sequences,
              std::size_t n_held, std::string& difference) {
    std::vector<std::size_t> open(texts_.size());
    for (std::size_t i = 0; i < open.size(); ++i) open[i] = i;
    std::vector<std::size_t> done(texts_.size());  // leading tokens whose logits were compared
    while (!open.empty()) {
      std::shuffle(open.begin(), open.end(), random_);
      const std::size_t n = std::min(draw(kMostAtOnce), open.size());
      for (const std::size_t i : std::span(open).subspan(std::min(n_held, open.size()))) {
        n_preempted_ += sequences[i]->position() > 0 ? 1 : 0;
        sequences[i]->truncate(0);
      }
      std::vector<Segment> segments;
      for (const std::size_t i : std::span(open).first(n))
        segments.push_back(next_segment(*sequences[i], texts_[i], done[i]));
      LLM_RETURN_IF_ERROR(executor.evaluate(segments));
      for (std::size_t s = 0; s < n; ++s) {
        const std::size_t i = open[s];
        if (segments[s].rows == LogitRows::kNone) {
          sequences[i]->truncate(std::max(texts_[i].begin, done[i]));
        } else if (difference.empty()) {
          difference = compare(i, segments[s]);
        }
        done[i] = sequences[i]->position();
      }
      std::erase_if(open, [&](std::size_t i) {
        if (done[i] < texts_[i].ids.size()) return false;
        sequences[i]->truncate(0);
        return true;
      });
    }
    return Ok{};
  }

  /// All tokens before those whose logits come next, at once and without logits; then one or
  /// several.
  /// @param done  leading tokens that need no logits any more
  Segment next_segment(Sequence& sequence, const Text& text, std::size_t done) {
    const std::size_t at = sequence.position();
    const std::span<const TokenId> ids = text.ids;
    if (at < std::max(text.begin, done))
      return {&sequence, done > text.begin ? ids.first(done) : common_, LogitRows::kNone};
    const std::size_t wanted = draw(2) == 1 ? std::size_t{1} : draw(kMostPrefill);
    return {&sequence, ids.subspan(at, std::min(wanted, ids.size() - at)), LogitRows::kAll};
  }

  /// What is wrong with a segment's logits; empty when nothing is.
  std::string compare(std::size_t index, const Segment& segment) const {
    const std::size_t n_vocab = model_->config().n_vocab;
    const std::size_t n_rows = segment.logits.size() / n_vocab;
    const std::size_t first = segment.sequence->position() - n_rows;
    const auto expected = std::span(texts_[index].expected)
                              .subspan((first - texts_[index].begin) * n_vocab, n_rows * n_vocab);
    const std::size_t i = first_unequal(segment.logits, expected);
    if (i == expected.size()) return {};
    return fmt::format(
        "sequence {} differs from its separate run, first at position {}, token {}: {} and {}",
        index, first + i / n_vocab, i % n_vocab, segment.logits[i], expected[i]);
  }

  const std::shared_ptr<const Model>& model_;
  KvType kv_;
  const SequenceCheckOptions& options_;
  std::mt19937_64 random_;
  KvGroups groups_;
  std::size_t n_common_ = 0;  ///< leading tokens that all are fed: a page, or none
  std::vector<TokenId> common_;
  std::size_t context_ = 0;
  std::vector<Text> texts_;
  std::size_t n_preempted_ = 0;  ///< times a sequence gave back its pages
};

}  // namespace

Result<std::vector<CheckResult>> check_sequences(const std::shared_ptr<const Model>& model,
                                                 KvType kv, const SequenceCheckOptions& options) {
  return SequenceCheck(model, kv, options).run();
}

}  // namespace llm
