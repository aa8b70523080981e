#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "tools/llmbench/measurement.h"

namespace llm {

struct RunnerOptions {
  std::optional<Isa> isa;
  KvType kv = KvType::kF16;
  Compute compute = Compute::kInt8;
  int repetitions = 5;
  bool peaks = true;              ///< one round of each PeakMeter in every round
  bool profile = false;           ///< time every op of the passes
  std::string packed_cache = {};  ///< directory; tests of tokens run on weights mapped from there
  Progress progress;              ///< may be empty
};

/// Runs a plan in rounds, each test once a round, so that a machine that speeds up or slows down
/// does so for all tests alike. Loads the model once if it can; anew for each count of threads and
/// for each test of the start.
class BenchRunner {
 public:
  BenchRunner(std::string path, std::vector<BenchTest> plan, RunnerOptions options);

  /// Ends early, with what there is, when an interrupt is requested (tools/common/signals.h).
  /// Errors: those of Model::load and Executor; kResource for memory.
  Status run();

  /// In the plan's order, without tests that never ran.
  std::vector<Measurement> measurements() const;
  /// Of each count of threads that was run.
  const std::map<int, PeakMeter>& peaks() const { return peaks_; }
  std::uint64_t weight_bytes() const { return weight_bytes_; }

 private:
  using SessionKey = std::pair<std::size_t, bool>;  ///< batch, cache

  Status run_test(Measurement& measurement);
  Status run_load(Measurement& measurement);
  Status run_first_token(Measurement& measurement);
  Status run_tokens(Measurement& measurement);
  Status time_tokens(Session& session, Measurement& measurement);
  /// A model of its own for a test of the start.
  Status start_model(const BenchTest& test);
  Status ensure_model(int threads);
  Status load_model(LoadOptions options);
  Result<Sequence*> ensure_session(const BenchTest& test);
  Status go_to_depth(Session& session, std::size_t depth) const;
  Status measure_peaks();
  void drop_model();

  /// Token i of every sequence: the same in each repetition, so that a cached depth stays valid.
  std::span<const TokenId> tokens(std::size_t begin, std::size_t count) const {
    return std::span(tokens_).subspan(begin, count);
  }

  std::string path_;
  RunnerOptions options_;
  std::vector<Measurement> measurements_;
  std::size_t context_;
  std::size_t most_prompt_;

  std::shared_ptr<const Model> model_;
  int model_threads_ = -1;  ///< as asked for
  std::vector<TokenId> tokens_;
  std::map<SessionKey, std::unique_ptr<Sequence>> sessions_;
  std::map<int, PeakMeter> peaks_;
  std::uint64_t weight_bytes_ = 0;
  bool warned_ = false;
  bool rss_is_clean_ = true;  ///< no memory but the engine's has been counted yet
};

}  // namespace llm
