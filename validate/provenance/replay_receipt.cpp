#include "validate/provenance/replay_receipt.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "validate/provenance/replayed_text.h"

namespace llm {
namespace {

constexpr std::size_t kMorePages = 32;  // of each group, besides those of the longest text

using Outcome = Result<std::vector<CheckResult>>;

/// Receipts of equal compute and KV type on their way through one executor. Texts are evaluated in
/// their order, so that few are open at once: those that have rows in a pass, and maybe the next.
class Batch {
 public:
  /// @param which  of the receipts are in it
  /// @param n_kept  as ReplayedText has it
  static Result<Batch> create(ReceiptModel& model, std::shared_ptr<const Model> computed,
                              std::span<const Receipt* const> receipts,
                              std::span<const std::size_t> which, std::size_t n_kept) {
    const std::size_t n_rows = receipt_batch(computed->config().n_vocab);
    std::size_t longest = 0;
    for (const std::size_t i : which) longest = std::max(longest, n_positions(*receipts[i]));
    const KvGroups groups(computed->config(), receipts[which.front()]->kv);
    LLM_TRY(auto executor,
            Executor::create(std::move(computed), {.context = std::max(longest, n_rows),
                                                   .kv = receipts[which.front()]->kv,
                                                   .batch = n_rows,
                                                   .kv_pages = groups.most_pages(longest, n_rows) +
                                                               kMorePages * groups.size()}));
    return Batch(model, std::move(executor), receipts, which, n_kept);
  }

  static std::size_t n_positions(const Receipt& receipt) {
    return std::min(receipt.prompt_ids.size() + receipt.ids.size(), receipt.context);
  }

  /// @param outcomes  of all receipts
  /// @param moved  called after each pass with the positions evaluated so far
  /// @return those whose settings are others
  std::vector<std::size_t> run(std::vector<Outcome>& outcomes,
                               const std::function<void(std::size_t)>& moved) {
    while (run_pass(outcomes)) moved(n_evaluated_);
    return std::move(has_other_settings_);
  }
  std::size_t n_evaluated() const { return n_evaluated_; }
  std::size_t n_passes() const { return executor_->passes(); }

 private:
  struct Open {
    std::size_t index;  ///< of the receipt
    std::unique_ptr<ReplayedText> text;
    std::unique_ptr<Sequence> sequence;
    std::size_t n_pages;  ///< that it may need
    Status status = Ok{};
    bool is_done() const { return !status.ok() || sequence->position() == text->n_positions(); }
  };

  Batch(ReceiptModel& model, std::shared_ptr<Executor> executor,
        std::span<const Receipt* const> receipts, std::span<const std::size_t> which,
        std::size_t n_kept)
      : model_(model),
        executor_(std::move(executor)),
        receipts_(receipts),
        waiting_(which),
        n_kept_(n_kept) {}

  /// @return whether there was something to evaluate
  bool run_pass(std::vector<Outcome>& outcomes) {
    std::vector<Segment> segments;
    for (std::size_t i = 0, room = executor_->options().batch; room > 0; ++i) {
      if (i == open_.size() && !open_next(outcomes)) break;
      segments.push_back(open_[i].text->next(*open_[i].sequence, room));
      room -= segments.back().tokens.size();
    }
    evaluate(segments, 0);
    const bool any = !open_.empty();
    for (Open& open : open_) {
      if (open.is_done()) close(open, outcomes);
    }
    std::erase_if(open_, [](const Open& open) { return open.text == nullptr; });
    return any;
  }

  /// Opens the next text that can be checked. @return false: there is none, or no place for it now
  bool open_next(std::vector<Outcome>& outcomes) {
    for (; !waiting_.empty(); waiting_ = waiting_.subspan(1)) {
      const std::size_t index = waiting_.front();
      const Receipt& receipt = *receipts_[index];
      const std::size_t n_pages =
          executor_->pool().groups().most_pages(n_positions(receipt), executor_->options().batch);
      std::size_t n_taken = n_pages;
      for (const Open& open : open_) n_taken += open.n_pages;
      if (n_taken > executor_->pool().n_pages()) return false;
      auto text = ReplayedText::create(model_, receipt, n_kept_);
      if (!text.ok()) {
        outcomes[index] = std::move(text).error();
        continue;
      }
      // Leading tokens that others have had are not evaluated again.
      auto sequence = Executor::open(executor_, {.share_prefix = true});
      LLM_CHECK(sequence.ok());
      open_.push_back({index, std::move(text).value(), std::move(sequence).value(), n_pages});
      waiting_ = waiting_.subspan(1);
      return true;
    }
    return false;
  }

  /// @param segments  of the texts from open_[first] on
  void evaluate(std::span<Segment> segments, std::size_t first) {
    if (segments.empty()) return;
    const Status status = executor_->evaluate(segments);
    if (status.ok()) return take(segments, first);
    if (segments.size() == 1) {
      open_[first].status = status;
      return;
    }
    // Whose error it is, shows when each is evaluated by itself.
    for (std::size_t i = 0; i < segments.size(); ++i) evaluate(segments.subspan(i, 1), first + i);
  }

  void take(std::span<const Segment> segments, std::size_t first) {
    // The longest first: no worker is left with much when the others are done.
    std::vector<std::size_t> order(segments.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::greater<>(),
                             [&](std::size_t i) { return segments[i].logits.size(); });
    std::vector<Status> drawn(segments.size(), Ok{});
    executor_->for_each(2 * segments.size(), [&](std::size_t task) {
      const std::size_t i = order[task % segments.size()];
      const Segment& segment = segments[i];
      const Open& open = open_[first + i];
      if (segment.logits.empty()) return;
      if (task < segments.size()) return open.text->hash(segment.logits);
      drawn[i] = open.text->draw(segment.logits, open.sequence->position() - segment.tokens.size());
    });
    for (std::size_t i = 0; i < segments.size(); ++i) {
      if (!drawn[i].ok()) open_[first + i].status = drawn[i];
    }
    for (const Segment& segment : segments) n_evaluated_ += segment.tokens.size();
  }

  void close(Open& open, std::vector<Outcome>& outcomes) {
    if (!open.status.ok()) {
      outcomes[open.index] = open.status.error();
    } else {
      outcomes[open.index] = open.text->checks();
      if (open.text->has_other_settings()) has_other_settings_.push_back(open.index);
    }
    open.text = nullptr;
  }

  ReceiptModel& model_;
  std::shared_ptr<Executor> executor_;
  std::span<const Receipt* const> receipts_;
  std::span<const std::size_t> waiting_;
  std::size_t n_kept_;
  std::vector<Open> open_;
  std::size_t n_evaluated_ = 0;
  std::vector<std::size_t> has_other_settings_;
};

}  // namespace

ReplayOutcome replay_receipts(const std::shared_ptr<const Model>& model,
                              std::span<const Receipt* const> receipts, const Progress& progress) {
  const auto start = std::chrono::steady_clock::now();
  ReplayOutcome outcome;
  outcome.receipts.assign(receipts.size(), Error{});
  std::map<std::pair<Compute, KvType>, std::vector<std::size_t>> groups;
  std::size_t n_in_all = 0;
  for (std::size_t i = 0; i < receipts.size(); ++i) {
    groups[{receipts[i]->compute, receipts[i]->kv}].push_back(i);
    n_in_all += Batch::n_positions(*receipts[i]);
  }
  ReceiptModel of_all(*model);
  const auto run = [&](const std::shared_ptr<const Model>& computed,
                       std::span<const std::size_t> which,
                       std::size_t n_kept) -> std::vector<std::size_t> {
    auto batch = Batch::create(of_all, computed, receipts, which, n_kept);
    if (!batch.ok()) {
      for (const std::size_t i : which) outcome.receipts[i] = batch.error();
      return {};
    }
    const std::size_t before = outcome.n_positions;
    const auto others = batch->run(outcome.receipts, [&](std::size_t n) {
      if (progress) progress("replay", std::min(before + n, n_in_all), n_in_all);
    });
    outcome.n_positions += batch->n_evaluated();
    outcome.n_passes += batch->n_passes();
    return others;
  };
  for (const auto& [mode, which] : groups) {
    const auto computed = model->with_compute(mode.first);
    if (!computed.ok()) {
      for (const std::size_t i : which) outcome.receipts[i] = computed.error();
      continue;
    }
    for (const std::size_t i : run(*computed, which, 0))
      run(*computed, {&i, 1}, receipt_batch(model->config().n_vocab));
  }
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return outcome;
}

}  // namespace llm
