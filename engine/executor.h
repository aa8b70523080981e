#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/forward/forward.h"
#include "engine/forward/reference/forward.h"
#include "engine/model/model.h"
#include "engine/session.h"
#include "engine/state/sequence_state.h"
#include "engine/state/state_store.h"

namespace llm {

struct ExecutorOptions {
  std::size_t context = 0;   ///< positions of the longest sequence; 0: the model's own
  KvType kv = KvType::kF16;  ///< how keys and values are stored
  std::size_t batch = 512;   ///< the most tokens of one pass; never changes a result
  std::size_t kv_pages = 0;  ///< pages of the KV cache (KvPool); 0: what one full context needs
  std::uint64_t passes = 0;  ///< how many are expected at most, for packing_time(); 0: not known
  /// Where sequences with share_prefix keep what they have on disk; null: nowhere. The model was
  /// loaded with hash_file.
  std::shared_ptr<StateStore> store = {};
};

struct SequenceOptions {
  std::size_t context = 0;    ///< positions it may hold; 0: the executor's
  bool use_cache = true;      ///< false: every evaluation computes all positions anew
  bool share_prefix = false;  ///< take over, and publish, what is stored of equal leading tokens
  std::string scope = {};     ///< only sequences of equal scopes share
  bool reference = false;     ///< computed by the definition in plain loops; slow
  bool nonfinite = false;     ///< NaN and Inf among logits are given back, not an error
  /// The scale of each of Model::adapters(), finite, 0: not used; empty: none is.
  std::vector<float> adapters = {};
};

class Sequence;

/// How long packing weights to stay may take before the next pass. A text for which it does not pay
/// has none of it. It begins before the second pass if it will pay, and late if that is not known.
/// No token takes much longer than two passes.
/// @param passes      so far
/// @param last        what the last one took
/// @param pays_after  Model::packing_pays_after()
/// @param expected    passes in all; 0: not known
constexpr std::chrono::nanoseconds packing_time(std::uint64_t passes, std::chrono::nanoseconds last,
                                                std::uint64_t pays_after,
                                                std::uint64_t expected = 0) {
  const std::uint64_t begin = expected > pays_after ? 0 : pays_after;
  return passes > begin ? last : last.zero();
}

/// One sequence's part of an evaluation.
struct Segment {
  Sequence* sequence;
  std::span<const TokenId> tokens;  ///< to append
  LogitRows rows;
  bool normed = false;  ///< the rows are those of the final norm: no logits are computed
  /// Result, [rows, n_vocab], or [rows, d_model] if `normed`; valid until the next evaluation.
  std::span<const float> logits = {};
};

/// Evaluates many sequences of one model. Owns what a pass needs, threads, activations and pages of
/// keys and values; a sequence owns its history alone. A token's logits depend on its own sequence
/// and on nothing else (docs/numerics.md), so what is evaluated together changes no bit.
///
/// One thread at a time; the executor's own work inside evaluate().
class Executor {
 public:
  /// Errors: kResource for the memory of activations or KV cache; kUsage for a batch of 0.
  static Result<std::shared_ptr<Executor>> create(std::shared_ptr<const Model> model,
                                                  const ExecutorOptions& options = {});

  /// A new, empty sequence; it keeps the executor alive. Errors: kUsage when its context exceeds
  /// the executor's, or for other adapters than the model's. Cost: none until tokens are evaluated.
  static Result<std::unique_ptr<Sequence>> open(std::shared_ptr<Executor> executor,
                                                const SequenceOptions& options = {});

  /// Appends each segment's tokens to its sequence, in as few passes over the weights as `batch`
  /// allows.
  /// @pre the sequences are this executor's, all different
  /// Errors: as Session::evaluate; kResource when the pages run out: who opens more sequences than
  /// they hold takes them back by truncate() (Scheduler does).
  /// After an error every sequence is where it was before the call. Positions that a sequence has
  /// no keys and values of any more (Sequence::truncate) are evaluated before its tokens, which may
  /// be none.
  Status evaluate(std::span<Segment> segments);

  /// Where the times of the passes to come are added (engine/forward/profile.h); nullptr: nowhere.
  void set_profile(PassProfile* profile) { forward_.set_profile(profile); }

  /// As Forward::set_kv_filter(). @pre no sequence has tokens
  void set_kv_filter(KvFilter filter) { forward_.set_kv_filter(filter); }

  /// Calls task(i) for every i in [0, n), at once on the model's threads, those of evaluate().
  void for_each(std::size_t n, const std::function<void(std::size_t)>& task) const;

  const Model& model() const { return *model_; }
  const ExecutorOptions& options() const { return options_; }
  const KvPool& pool() const { return *pool_; }
  /// Passes over the weights so far.
  std::uint64_t passes() const { return passes_; }

 private:
  friend class Sequence;

  /// What is left of a segment during an evaluation.
  struct Work {
    Sequence* sequence;
    std::size_t first_logit;  ///< position of the first row that is wanted
    bool normed;              ///< as Segment::normed
    float* logits;
    std::size_t size_before;  ///< of the sequence
    bool done;                ///< has its rows
  };

  Executor(std::shared_ptr<const Model> model, const ExecutorOptions& options,
           std::shared_ptr<KvPool> pool, Forward forward);

  Status check(const Segment& segment) const;
  /// Of the segments whose logits must be finite, the first one that has others.
  std::optional<std::size_t> first_broken(std::span<const Segment> segments) const;
  std::size_t row_size(bool normed) const {
    return normed ? model_->config().d_model : model_->config().n_vocab;
  }
  /// Until every sequence has its keys, values and wanted logits.
  Status run(std::span<Work> work);
  /// One pass of as many tokens as it takes, in the order of `work`.
  Status run_pass(std::span<Work> work);
  void run_forward(std::span<const PassSegment> pass, std::span<Work* const> taken,
                   ProbeSink* probe);
  Status run_by_definition(Work& w);
  /// Before a pass of `n_rows` rows: packs part of the weights that are still in the file to stay.
  Status keep_weights(std::size_t n_rows);
  Error out_of_pages(const Sequence& sequence) const;
  Error find_nonfinite(Work& w);

  std::shared_ptr<const Model> model_;
  ExecutorOptions options_;
  Prefix root_;  ///< what keys and values depend on besides tokens
  std::shared_ptr<KvPool> pool_;
  Forward forward_;
  reference::Forward reference_;
  std::vector<float> logits_;       ///< results of the last evaluation, normed rows behind logits
  std::vector<float> pass_logits_;  ///< of a pass whose results do not lie in one run
  std::vector<float> normed_;       ///< rows of a pass that Sequence::OnNormed is told
  std::uint64_t passes_ = 0;
  std::chrono::nanoseconds last_pass_{0};  ///< what it took
};

/// One sequence of an executor: its tokens, and the pages that hold its keys and values.
class Sequence final : public Session {
 public:
  /// Publishes what is stored, with share_prefix.
  ~Sequence() override;

  const Model& model() const { return executor_->model(); }
  const Executor& executor() const { return *executor_; }
  Executor& executor() { return *executor_; }
  const SequenceOptions& options() const { return options_; }
  KvType kv() const { return executor_->options().kv; }
  std::span<const TokenId> tokens() const { return tokens_; }
  const SequenceState& cache() const { return cache_; }
  const SequenceState* state() const override { return &cache_; }
  /// Tokens that it need not compute since they were on disk, so far.
  std::size_t n_loaded() const { return n_loaded_; }

  const Tokenizer& tokenizer() const override { return model().tokenizer(); }
  std::size_t n_vocab() const override { return model().config().n_vocab; }
  std::size_t position() const override { return tokens_.size(); }
  std::size_t context() const override { return options_.context; }
  std::size_t batch() const override {
    return options_.use_cache ? executor_->options().batch : context();
  }
  Result<std::span<const float>> evaluate(std::span<const TokenId> tokens, LogitRows rows) override;
  /// What windows reach into may be gone: then the next evaluation computes from reusable() on.
  void truncate(std::size_t n_positions) override;
  std::size_t reusable(std::size_t n_positions) const override {
    return cache_.reusable(std::min(n_stored_, n_positions));
  }
  void set_probe(ProbeSink* sink) override { probe_ = sink; }

  /// With share_prefix: publishes the states behind these positions, where layers have states.
  void set_checkpoints(std::span<const std::size_t> positions) override;

  /// After each pass, told the rows of the final norm, (n, d_model), of the positions from `first`
  /// on that it computed. Never changes a result.
  using OnNormed = std::function<void(std::size_t first, std::span<const float> rows)>;
  void set_on_normed(OnNormed on_normed) { on_normed_ = std::move(on_normed); }

  /// Takes over the pages that others have published of `tokens`: position() moves to where they
  /// end, if that is behind it, and nothing before is evaluated any more. With share_prefix only.
  /// @param tokens  those of the sequence, and more to come. @return position()
  std::size_t adopt(std::span<const TokenId> tokens);
  /// What of `tokens` behind position() was stored once and is computed again. @pre adopt(tokens)
  SequenceState::Lost lost(std::span<const TokenId> tokens) const {
    return cache_.lost(tokens, n_stored_);
  }

  /// Lets others find what is stored, also on disk; with share_prefix only. Its end does it, too.
  void publish(SequenceState::Publish what = SequenceState::Publish::kAll);

 private:
  friend class Executor;
  Sequence(std::shared_ptr<Executor> executor, const SequenceOptions& options);
  bool shares() const { return options_.share_prefix && options_.use_cache; }
  /// Forgets what is stored behind n_positions.
  void keep_stored(std::size_t n_positions) {
    n_stored_ = cache_.truncate(std::min(n_stored_, n_positions));
    n_saved_ = std::min(n_saved_, n_stored_);
  }
  /// Before a pass of positions [begin, end): which states it copies.
  /// @param first_logit  the first position whose logits are wanted
  void copy_states(std::size_t begin, std::size_t end, std::size_t first_logit);
  /// After a pass of n positions: publishes what it stored.
  void note_pass(std::size_t n);
  bool is_checkpoint(std::size_t position) const;
  /// Keeps on disk what is published of the last page of `tokens`, which are stored.
  void save_page(std::span<const TokenId> tokens);
  /// Moves n_stored_ to the end of what published pages hold of `tokens`, if that is behind it.
  /// @pre tokens has the stored ones
  void take_stored(std::span<const TokenId> tokens);

  std::shared_ptr<Executor> executor_;
  SequenceOptions options_;
  std::vector<TokenId> tokens_;
  std::size_t n_stored_ = 0;
  std::size_t n_saved_ = 0;               ///< of those in whole pages: on disk, or as good as
  std::size_t n_loaded_ = 0;              ///< tokens that came from disk
  std::vector<std::size_t> checkpoints_;  ///< ascending
  SequenceState cache_;
  OnNormed on_normed_;
  ProbeSink* probe_ = nullptr;
};

/// About what an executor takes for the activations of a pass of `rows` tokens, with the logits of
/// `texts` of them: residual stream, what is added to it and its norm; queries, keys, values and
/// their outputs; layers' own inputs; what feed-forwards hold.
std::uint64_t activation_bytes(const HyperParameters& config, std::size_t rows, std::size_t texts);

/// A sequence with an executor of its own: what a tool that runs one text needs.
Result<std::unique_ptr<Sequence>> open_sequence(std::shared_ptr<const Model> model,
                                                const ExecutorOptions& options = {},
                                                const SequenceOptions& sequence = {});

}  // namespace llm
