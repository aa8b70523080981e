#include "tools/llmbench/runner.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include "tools/common/signals.h"
#include "tools/common/stats.h"

namespace llm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kFirstTokenContext = 512;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Makes the peak resident set start anew from the present one (Linux: proc(5), clear_refs).
/// @return false where the system has no such thing
bool reset_peak_rss() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}

}  // namespace

BenchRunner::BenchRunner(std::string path, std::vector<BenchTest> plan, RunnerOptions options)
    : path_(std::move(path)), options_(std::move(options)), context_(context_needed(plan)) {
  most_prompt_ = 1;
  for (const BenchTest& test : plan) {
    measurements_.push_back({.test = test, .kv = options_.kv, .compute = options_.compute});
    if (test.kind == BenchKind::kPrompt) most_prompt_ = std::max(most_prompt_, test.n_tokens);
  }
}

Status BenchRunner::run() {
  const std::size_t total = measurements_.size() * static_cast<std::size_t>(options_.repetitions);
  std::size_t done = 0;
  for (int round = 0; round < options_.repetitions; ++round) {
    for (Measurement& measurement : measurements_) {
      if (GracefulInterrupt::requested()) return Ok{};
      if (options_.progress) options_.progress("bench", done++, total);
      LLM_RETURN_IF_ERROR(run_test(measurement));
    }
    LLM_RETURN_IF_ERROR(measure_peaks());
  }
  return Ok{};
}

Status BenchRunner::run_test(Measurement& measurement) {
  if (measurement.test.is_latency()) drop_model();
  if (reset_peak_rss()) rss_is_clean_ = true;
  const BenchKind kind = measurement.test.kind;
  LLM_RETURN_IF_ERROR(kind == BenchKind::kLoad         ? run_load(measurement)
                      : kind == BenchKind::kFirstToken ? run_first_token(measurement)
                                                       : run_tokens(measurement));
  measurement.threads = model_->threads();
  measurement.isa = model_->isa();
  if (rss_is_clean_) {
    measurement.peak_rss_bytes = std::max(measurement.peak_rss_bytes, peak_rss_bytes());
  }
  return Ok{};
}

Status BenchRunner::start_model(const BenchTest& test) {
  LoadOptions options;
  options.threads = test.threads;
  // As llmrun does it.
  options.defer_packing = test.kind == BenchKind::kFirstToken;
  if (test.packed) options.packed_cache = options_.packed_cache;
  return load_model(std::move(options));
}

Status BenchRunner::run_load(Measurement& measurement) {
  if (measurement.seconds.empty()) {
    // The first load brings the file into the page cache, or makes the packed cache; its time says
    // more of the disk.
    LLM_RETURN_IF_ERROR(start_model(measurement.test));
    drop_model();
    reset_peak_rss();
  }
  const auto started = Clock::now();
  LLM_RETURN_IF_ERROR(start_model(measurement.test));
  measurement.seconds.push_back(seconds_since(started));
  measurement.starts.push_back({.load = model_->load_times()});
  return Ok{};
}

Status BenchRunner::run_first_token(Measurement& measurement) {
  const auto started = Clock::now();
  LLM_RETURN_IF_ERROR(start_model(measurement.test));
  const auto loaded = Clock::now();
  LLM_TRY(const auto session,
          open_sequence(model_, {.context = std::max(kFirstTokenContext, measurement.test.n_tokens),
                                 .kv = options_.kv}));
  LLM_TRY(const auto logits,
          session->evaluate(tokens(0, measurement.test.n_tokens), LogitRows::kLast));
  const auto token = std::ranges::max_element(logits) - logits.begin();
  measurement.seconds.push_back(seconds_since(started));
  measurement.starts.push_back(
      {.load = model_->load_times(), .first_token = seconds_since(loaded)});
  spdlog::debug("first token {}", token);
  return Ok{};
}

Status BenchRunner::run_tokens(Measurement& measurement) {
  const BenchTest& test = measurement.test;
  LLM_RETURN_IF_ERROR(ensure_model(test.threads));
  LLM_RETURN_IF_ERROR(model_->pack_weights());  // a first token before left them in the file
  LLM_TRY(Sequence * session, ensure_session(test));
  LLM_RETURN_IF_ERROR(go_to_depth(*session, test.depth));
  session->executor().set_profile(options_.profile ? &measurement.profile : nullptr);
  const Status status = time_tokens(*session, measurement);
  session->executor().set_profile(nullptr);
  return status;
}

Status BenchRunner::time_tokens(Session& session, Measurement& measurement) {
  const BenchTest& test = measurement.test;
  const auto started = Clock::now();
  if (test.kind == BenchKind::kPrompt) {
    LLM_RETURN_IF_ERROR(session.evaluate(tokens(test.depth, test.n_tokens), LogitRows::kLast));
    measurement.seconds.push_back(seconds_since(started));
    return Ok{};
  }
  auto token_started = started;
  for (std::size_t i = 0; i < test.n_tokens; i += test.step) {
    const std::size_t count = std::min(test.step, test.n_tokens - i);
    LLM_RETURN_IF_ERROR(session.evaluate(tokens(test.depth + i, count), LogitRows::kAll));
    if (test.step > 1) continue;
    const auto now = Clock::now();
    measurement.token_seconds.push_back(std::chrono::duration<double>(now - token_started).count());
    token_started = now;
  }
  measurement.seconds.push_back(seconds_since(started));
  return Ok{};
}

Status BenchRunner::ensure_model(int threads) {
  if (model_ != nullptr && model_threads_ == threads) return Ok{};
  drop_model();
  LoadOptions options;
  options.threads = threads;
  options.packed_cache = options_.packed_cache;
  return load_model(std::move(options));
}

Status BenchRunner::load_model(LoadOptions options) {
  options.compute = options_.compute;
  options.isa = options_.isa;
  options.progress = options_.progress;
  LLM_TRY(model_, Model::load(path_, options));
  model_threads_ = options.threads;
  weight_bytes_ = model_->weight_bytes();
  const std::size_t n_vocab = model_->config().n_vocab;
  tokens_.resize(std::max(context_, kFirstTokenContext));
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    tokens_[i] = static_cast<TokenId>((i * 7919 + 1) % n_vocab);
  }
  if (warned_) return Ok{};
  warned_ = true;
  for (const std::string& warning : model_->warnings()) spdlog::warn("{}", warning);
  if (context_ > model_->config().context) {
    spdlog::warn("tests need {} positions, the model was trained for {}", context_,
                 model_->config().context);
  }
  return Ok{};
}

Result<Sequence*> BenchRunner::ensure_session(const BenchTest& test) {
  auto& session = sessions_[{test.batch, test.cache}];
  if (session != nullptr) return session.get();
  LLM_TRY(session,
          open_sequence(model_, {.context = context_, .kv = options_.kv, .batch = test.batch},
                        {.use_cache = test.cache}));
  // Touches every activation and starts the threads.
  const std::size_t warm_up = std::min({test.batch, context_, most_prompt_});
  LLM_RETURN_IF_ERROR(session->evaluate(tokens(0, warm_up), LogitRows::kLast));
  session->truncate(0);
  return session.get();
}

Status BenchRunner::go_to_depth(Session& session, std::size_t depth) const {
  session.truncate(session.reusable(std::min(session.position(), depth)));
  const std::size_t position = session.position();
  if (position == depth) return Ok{};
  LLM_RETURN_IF_ERROR(session.evaluate(tokens(position, depth - position), LogitRows::kNone));
  return Ok{};
}

Status BenchRunner::measure_peaks() {
  if (!options_.peaks) return Ok{};
  rss_is_clean_ = false;
  for (const Measurement& measurement : measurements_) {
    peaks_.try_emplace(measurement.threads, measurement.isa, measurement.threads);
  }
  for (auto& [threads, meter] : peaks_) LLM_RETURN_IF_ERROR(meter.measure());
  return Ok{};
}

void BenchRunner::drop_model() {
  sessions_.clear();
  model_.reset();
  model_threads_ = -1;
}

std::vector<Measurement> BenchRunner::measurements() const {
  std::vector<Measurement> done;
  std::ranges::copy_if(measurements_, std::back_inserter(done),
                       [](const Measurement& m) { return !m.seconds.empty(); });
  return done;
}

}  // namespace llm
