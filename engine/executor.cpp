#include "engine/executor.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/float_environment.h"
#include "base/thread_team.h"
#include "engine/forward/nonfinite_finder.h"
#include "quant/numerics/contract.h"

namespace llm {
namespace {

/// States are kept at multiples of it, too.
constexpr std::size_t kStride = 1024;
/// States that a sequence with pages of its own alone may keep.
constexpr std::size_t kSpareStates = 8;

/// What stands for no tokens. Changes with all that bits of keys, values and states depend on.
Prefix root_of(const Model& model, KvType kv) {
  Sha256 hash;
  const auto add = [&](std::string_view text) { hash.update(std::as_bytes(std::span(text))); };
  add(fmt::format("llm state 1, contract {}, kv {}, compute {}, model {}",
                  contract::kContractVersion, kv_name(kv),
                  model.compute() == Compute::kInt8 ? "int8" : "f32", model.file_sha256()));
  return hash.digest();
}

/// Of sequences of that scope and those adapters.
Prefix root_in(const Prefix& root, const Model& model, const SequenceOptions& options) {
  std::string depends = options.scope;
  for (std::size_t i = 0; i < options.adapters.size(); ++i) {
    // A zero byte, which no scope has, ends what stands before.
    if (const float scale = options.adapters[i]; scale != 0)
      depends +=
          fmt::format("{}adapter {} {} {:a}", '\0', i, model.adapters()[i]->file_sha256(), scale);
  }
  if (depends.empty()) return root;
  Sha256 hash;
  hash.update(root);
  hash.update(std::as_bytes(std::span(depends)));
  return hash.digest();
}

Status check_adapters(const Model& model, std::span<const float> scales) {
  if (scales.size() > model.adapters().size())
    return Error{ErrorCode::kUsage, "adapters",
                 fmt::format("found scales of {}, need at most {} (the model's adapters)",
                             scales.size(), model.adapters().size())};
  for (const float scale : scales)
    if (!std::isfinite(scale))
      return Error{ErrorCode::kUsage, "adapters",
                   fmt::format("found the scale {}, need a finite number", scale)};
  return Ok{};
}

/// For one sequence, and some of its states.
std::size_t enough_pages(const KvGroups& groups, const ExecutorOptions& options) {
  std::size_t pages = groups.most_pages(options.context, options.batch);
  for (std::size_t group = 0; group < groups.size(); ++group)
    if (groups.is_state(group)) pages += kSpareStates;
  return pages;
}

}  // namespace

Result<std::shared_ptr<Executor>> Executor::create(std::shared_ptr<const Model> model,
                                                   const ExecutorOptions& options) {
  ExecutorOptions chosen = options;
  if (chosen.batch == 0) return Error{ErrorCode::kUsage, "batch", "found 0, need 1 or more"};
  if (chosen.context == 0) chosen.context = model->config().context;
  chosen.batch = std::min(chosen.batch, chosen.context);
  if (chosen.kv_pages == 0)
    chosen.kv_pages = enough_pages(KvGroups(model->config(), chosen.kv), chosen);
  LLM_TRY(auto pool, KvPool::create(model->config(), chosen.kv_pages, chosen.kv));
  LLM_TRY(Forward forward, Forward::create(*model, chosen.batch, chosen.context, chosen.kv));
  return std::shared_ptr<Executor>(
      new Executor(std::move(model), chosen, std::move(pool), std::move(forward)));
}

Executor::Executor(std::shared_ptr<const Model> model, const ExecutorOptions& options,
                   std::shared_ptr<KvPool> pool, Forward forward)
    : model_(std::move(model)),
      options_(options),
      root_(root_of(*model_, options.kv)),
      pool_(std::move(pool)),
      forward_(std::move(forward)),
      reference_(*model_) {}

Result<std::unique_ptr<Sequence>> Executor::open(std::shared_ptr<Executor> executor,
                                                 const SequenceOptions& options) {
  SequenceOptions chosen = options;
  const std::size_t most = executor->options_.context;
  if (chosen.context == 0) chosen.context = most;
  if (chosen.context > most)
    return Error{ErrorCode::kUsage, "context",
                 fmt::format("found {}, need at most {}", chosen.context, most)};
  LLM_RETURN_IF_ERROR(check_adapters(*executor->model_, chosen.adapters));
  return std::unique_ptr<Sequence>(new Sequence(std::move(executor), chosen));
}

std::uint64_t activation_bytes(const HyperParameters& config, std::size_t rows, std::size_t texts) {
  const std::size_t row = 3 * config.d_model + 2 * config.most(&LayerSpec::q_rows) +
                          2 * config.most(&LayerSpec::kv_rows) + 2 * config.d_inputs +
                          3 * config.most(&LayerSpec::ffn_width) +
                          config.most(&LayerSpec::n_ffn_used) * config.d_model;
  return sizeof(float) * (rows * row + texts * config.n_vocab);
}

Result<std::unique_ptr<Sequence>> open_sequence(std::shared_ptr<const Model> model,
                                                const ExecutorOptions& options,
                                                const SequenceOptions& sequence) {
  LLM_TRY(auto executor, Executor::create(std::move(model), options));
  return Executor::open(std::move(executor), sequence);
}

Status Executor::check(const Segment& segment) const {
  const auto n_vocab = static_cast<TokenId>(model_->config().n_vocab);
  for (const TokenId id : segment.tokens) {
    if (id < 0 || id >= n_vocab) {
      return Error{ErrorCode::kUsage, "token id",
                   fmt::format("found {}, need 0..{}", id, n_vocab - 1)};
    }
  }
  const Sequence& sequence = *segment.sequence;
  LLM_CHECK(sequence.executor_.get() == this);
  if (segment.tokens.size() > sequence.context() - sequence.position()) {
    return Error{
        .code = ErrorCode::kResource,
        .field = "context",
        .message = fmt::format("found {} tokens after position {}, need at most {} in all",
                               segment.tokens.size(), sequence.position(), sequence.context()),
        .hint = "raise -c or shorten the prompt"};
  }
  return Ok{};
}

Status Executor::evaluate(std::span<Segment> segments) {
  const FloatEnvironment contract;
  std::vector<std::size_t> n_rows;
  std::size_t sizes[2] = {};  // of logits, of normed rows
  for (const Segment& segment : segments) {
    LLM_RETURN_IF_ERROR(check(segment));
    const std::size_t most = segment.rows == LogitRows::kAll    ? segment.tokens.size()
                             : segment.rows == LogitRows::kLast ? std::size_t{1}
                                                                : 0;
    n_rows.push_back(std::min(most, segment.tokens.size()));
    sizes[segment.normed] += n_rows.back() * row_size(segment.normed);
  }
  logits_.resize(sizes[0] + sizes[1]);
  std::vector<Work> work;
  float* next[2] = {logits_.data(), logits_.data() + sizes[0]};
  for (std::size_t i = 0; i < segments.size(); ++i) {
    Segment& segment = segments[i];
    Sequence& s = *segment.sequence;
    const std::size_t size_before = s.tokens_.size();
    s.tokens_.insert(s.tokens_.end(), segment.tokens.begin(), segment.tokens.end());
    work.push_back({.sequence = &s,
                    .first_logit = s.tokens_.size() - n_rows[i],
                    .normed = segment.normed,
                    .logits = next[segment.normed],
                    .size_before = size_before,
                    .done = false});
    segment.logits = {next[segment.normed], n_rows[i] * row_size(segment.normed)};
    next[segment.normed] += segment.logits.size();
    if (!s.options_.use_cache) s.keep_stored(0);
    // The rows that are wanted are computed, whoever has their keys and values.
    s.take_stored(std::span(s.tokens_).first(work.back().first_logit));
    work.back().done = s.n_stored_ == s.tokens_.size();
  }
  Status status = run(work);
  if (status.ok()) {
    if (const auto broken = first_broken(segments)) status = find_nonfinite(work[*broken]);
  }
  if (!status.ok()) {
    for (const Work& w : work) w.sequence->truncate(w.size_before);
  }
  return status;
}

std::optional<std::size_t> Executor::first_broken(std::span<const Segment> segments) const {
  std::vector<std::size_t> judged;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    if (!segments[i].sequence->options_.nonfinite && !segments[i].logits.empty())
      judged.push_back(i);
  }
  std::vector<char> broken(judged.size());
  for_each(judged.size(), [&](std::size_t i) {
    const std::span<const float> logits = segments[judged[i]].logits;
    broken[i] = first_nonfinite(logits) < logits.size() ? 1 : 0;
  });
  const auto found = std::ranges::find(broken, 1);
  if (found == broken.end()) return std::nullopt;
  return judged[static_cast<std::size_t>(found - broken.begin())];
}

Status Executor::run(std::span<Work> work) {
  for (Work& w : work) {
    if (w.sequence->options_.reference) LLM_RETURN_IF_ERROR(run_by_definition(w));
  }
  while (!std::ranges::all_of(work, &Work::done)) LLM_RETURN_IF_ERROR(run_pass(work));
  return Ok{};
}

Error Executor::out_of_pages(const Sequence& sequence) const {
  return Error{
      .code = ErrorCode::kResource,
      .field = "KV cache",
      .message = fmt::format("found {} pages of {} positions, need {}", pool_->n_pages(),
                             KvPool::kPagePositions,
                             pool_->groups().most_pages(sequence.tokens_.size(), options_.batch))};
}

Status Executor::run_pass(std::span<Work> work) {
  std::vector<PassSegment> pass;
  std::vector<Work*> taken;
  std::size_t n_tokens = 0;
  ProbeSink* probe = nullptr;
  for (Work& w : work) {
    Sequence& s = *w.sequence;
    if (w.done || n_tokens == options_.batch) continue;
    if (s.probe_ != nullptr && !pass.empty()) continue;  // a probe has a pass of its own
    const std::size_t begin = s.n_stored_;
    const std::size_t n = std::min(options_.batch - n_tokens, s.tokens_.size() - begin);
    if (!s.cache_.reserve(begin, begin + n)) return out_of_pages(s);
    pass.push_back({.tokens = std::span(s.tokens_).subspan(begin, n),
                    .first_position = begin,
                    .state = &s.cache_,
                    .n_logits = begin + n - std::clamp(w.first_logit, begin, begin + n),
                    .normed = w.normed,
                    .all_normed = s.on_normed_ && !w.normed && s.probe_ == nullptr,
                    .adapters = s.options_.adapters});
    taken.push_back(&w);
    n_tokens += n;
    probe = s.probe_;
    if (probe != nullptr) break;
  }
  for (std::size_t i = 0; i < pass.size(); ++i) {
    const std::size_t begin = pass[i].first_position;
    taken[i]->sequence->copy_states(begin, begin + pass[i].tokens.size(), taken[i]->first_logit);
  }
  LLM_RETURN_IF_ERROR(keep_weights(n_tokens));
  run_forward(pass, taken, probe);
  LLM_RETURN_IF_ERROR(model_->check_weights());
  std::span<const float> told = normed_;
  for (std::size_t i = 0; i < pass.size(); ++i) {
    Sequence& s = *taken[i]->sequence;
    if (pass[i].all_normed) {
      const std::size_t size = pass[i].tokens.size() * model_->config().d_model;
      s.on_normed_(pass[i].first_position, told.first(size));
      told = told.subspan(size);
    }
    s.note_pass(pass[i].tokens.size());
    taken[i]->done = s.n_stored_ == s.tokens_.size();
  }
  return Ok{};
}

void Executor::for_each(std::size_t n, const std::function<void(std::size_t)>& task) const {
  if (n == 1) return task(0);
  if (n > 0) run_parallel(model_->threads(), [&](Worker worker) { worker.take_tasks(n, task); });
}

Status Executor::keep_weights(std::size_t n_rows) {
  if (model_->weights_in_memory()) return Ok{};
  LLM_RETURN_IF_ERROR(model_->check_weights());  // a pass must not read a file that was cut
  const std::chrono::nanoseconds time =
      packing_time(passes_, last_pass_, model_->packing_pays_after(), options_.passes);
  if (time == time.zero()) return Ok{};
  const auto started = OpClock::Time::clock::now();
  const Status packed = model_->pack_weights_for(time);
  forward_.profile_packing(OpClock::Time::clock::now() - started, n_rows);
  return packed;
}

void Executor::run_forward(std::span<const PassSegment> pass, std::span<Work* const> taken,
                           ProbeSink* probe) {
  // Where each segment's rows belong, in the order of Forward::run(); in one run, the pass writes
  // them there itself.
  std::vector<std::span<float>> places;
  std::size_t size = 0;
  bool in_one_run = true;
  std::size_t n_told = 0;
  for (const PassSegment& segment : pass)
    if (segment.all_normed) n_told += segment.tokens.size() * row_size(true);
  normed_.resize(n_told);
  std::span<float> told = normed_;
  const auto add = [&](std::span<float> place) {
    in_one_run = in_one_run &&
                 (places.empty() || place.data() == places.back().data() + places.back().size());
    places.push_back(place);
    size += place.size();
  };
  for (const bool normed : {false, true}) {
    for (std::size_t i = 0; i < pass.size(); ++i) {
      if (normed && pass[i].all_normed) {
        const std::size_t n = pass[i].tokens.size() * row_size(true);
        add(told.first(n));
        told = told.subspan(n);
      }
      const std::size_t n = pass[i].n_logits;
      if (n == 0 || pass[i].normed != normed) continue;
      const std::size_t first = pass[i].first_position + pass[i].tokens.size() - n;
      const std::size_t before = first - taken[i]->first_logit;
      float* const place = taken[i]->logits + before * row_size(normed);
      add({place, n * row_size(normed)});
    }
  }
  ++passes_;
  const auto run = [&](std::span<float> rows) {
    const auto started = OpClock::Time::clock::now();
    forward_.run(pass, rows, probe);
    last_pass_ = OpClock::Time::clock::now() - started;
  };
  if (in_one_run) return run({places.empty() ? nullptr : places[0].data(), size});
  pass_logits_.resize(size);
  run(pass_logits_);
  const float* row = pass_logits_.data();
  for (const std::span<float> place : places) {
    std::copy_n(row, place.size(), place.begin());
    row += place.size();
  }
}

Status Executor::run_by_definition(Work& w) {
  const std::size_t width = row_size(w.normed);
  Sequence& s = *w.sequence;
  LLM_RETURN_IF_ERROR(model_->pack_weights());
  while (!w.done) {
    const std::size_t begin = s.n_stored_;
    const std::size_t end = std::min(begin + options_.batch, s.tokens_.size());
    if (!s.cache_.reserve(begin, end)) return out_of_pages(s);
    const std::size_t first = std::clamp(w.first_logit, begin, end);
    reference_.run(
        std::span(s.tokens_).subspan(begin, end - begin), begin, s.cache_, s.options_.adapters,
        {w.logits + (first - std::min(first, w.first_logit)) * width, (end - first) * width},
        w.normed ? "result_norm" : "logits", s.probe_);
    s.n_stored_ = end;
    w.done = end == s.tokens_.size();
  }
  return Ok{};
}

Error Executor::find_nonfinite(Work& w) {
  // From the start: the fault may have come into the cache when no logits were asked for.
  NonFiniteFinder finder;
  Sequence& s = *w.sequence;
  ProbeSink* const probe = std::exchange(s.probe_, &finder);
  s.keep_stored(0);
  w.done = false;
  const Status status = run({&w, 1});
  s.probe_ = probe;
  return status.ok() ? finder.error() : status.error();
}

Sequence::Sequence(std::shared_ptr<Executor> executor, const SequenceOptions& options)
    : executor_(std::move(executor)),
      options_(options),
      cache_(executor_->pool_, root_in(executor_->root_, executor_->model(), options_)) {}

Sequence::~Sequence() {
  try {
    publish(SequenceState::Publish::kAll);
  } catch (const std::bad_alloc&) {  // then others compute it again
  }
}

void Sequence::publish(SequenceState::Publish what) {
  if (!shares()) return;
  constexpr std::size_t kPage = KvPool::kPagePositions;
  const auto stored = std::span<const TokenId>(tokens_).first(n_stored_);
  cache_.publish(stored, what);
  if (executor_->options_.store == nullptr) return;
  // At its end all that it used is noted as such.
  const bool is_end = what == SequenceState::Publish::kAll;
  for (std::size_t at = is_end ? 0 : n_saved_; at < stored.size(); at += kPage) {
    const std::size_t end = std::min(at + kPage, stored.size());
    if (end < at + kPage && !is_end) break;
    save_page(stored.first(end));
    if (end == at + kPage) n_saved_ = end;
  }
}

void Sequence::set_checkpoints(std::span<const std::size_t> positions) {
  checkpoints_.assign(positions.begin(), positions.end());
}

bool Sequence::is_checkpoint(std::size_t position) const {
  return position % kStride == 0 || std::ranges::binary_search(checkpoints_, position);
}

void Sequence::copy_states(std::size_t begin, std::size_t end, std::size_t first_logit) {
  using enum SequenceState::CopyFor;
  if (!cache_.pool().groups().has_states()) return;
  // Where logits of several positions are wanted, those behind the first may be taken back.
  const bool is_trial = first_logit >= begin && end - first_logit <= KvGroups::kSlack;
  for (std::size_t position = begin + 1; position < end; ++position) {
    if (shares() && is_checkpoint(position)) cache_.copy_states(position, kPublish);
    if (is_trial && position == first_logit + 1) cache_.copy_states(position, kReturn);
  }
}

void Sequence::note_pass(std::size_t n) {
  using enum SequenceState::Publish;
  const std::size_t begin = n_stored_;
  n_stored_ += n;
  const bool has_states = cache_.pool().groups().has_states();
  if (shares() && has_states) {
    const auto stored = std::span<const TokenId>(tokens_).first(n_stored_);
    cache_.publish(stored, is_checkpoint(n_stored_) ? kAll : kWholePages);
    for (std::size_t position = begin + 1; position <= n_stored_; ++position)
      if (is_checkpoint(position)) save_page(stored.first(position));
  }
  cache_.lend_copies();
  publish(kWholePages);
}

void Sequence::save_page(std::span<const TokenId> tokens) {
  StateStore* const store = executor_->options_.store.get();
  if (store == nullptr) return;
  const std::size_t page = (tokens.size() - 1) / KvPool::kPagePositions;
  store->save(*executor_->pool_, cache_.prefix_before(page), page,
              tokens.subspan(page * KvPool::kPagePositions));
}

Result<std::span<const float>> Sequence::evaluate(std::span<const TokenId> tokens, LogitRows rows) {
  Segment segment{this, tokens, rows};
  LLM_RETURN_IF_ERROR(executor_->evaluate({&segment, 1}));
  return segment.logits;
}

std::size_t Sequence::adopt(std::span<const TokenId> tokens) {
  LLM_CHECK(tokens.size() >= position() && std::ranges::equal(tokens_, tokens.first(position())));
  tokens_.reserve(tokens.size());  // never fewer tokens than are stored, even where memory is short
  take_stored(tokens);
  if (n_stored_ > position()) {
    const auto stored = tokens.first(n_stored_);
    tokens_.assign(stored.begin(), stored.end());
  }
  return position();
}

void Sequence::take_stored(std::span<const TokenId> tokens) {
  if (!shares() || probe_ != nullptr) return;
  keep_stored(n_stored_);
  cache_.publish(tokens.first(n_stored_));
  n_stored_ = cache_.adopt(tokens, n_stored_);
  StateStore* const store = executor_->options_.store.get();
  if (store == nullptr || n_stored_ == tokens.size()) return;
  const Prefix& root = cache_.prefix_before(0);
  if (store->load(*executor_->pool_, root, tokens, n_stored_) == 0) return;
  const std::size_t before = std::exchange(n_stored_, cache_.adopt(tokens, n_stored_));
  n_loaded_ += n_stored_ - before;
}

void Sequence::truncate(std::size_t n_positions) {
  LLM_CHECK(n_positions <= position());
  tokens_.resize(n_positions);
  keep_stored(n_positions);
}

}  // namespace llm
