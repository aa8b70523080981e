#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/peaks.h"
#include "engine/engine.h"

namespace llm {

enum class BenchKind {
  kLoad,        ///< opening, checking and packing the model
  kFirstToken,  ///< opening, checking, and an 8-token prompt up to its first token
  kPrompt,      ///< prefill of n tokens after `depth` others
  kGenerate,    ///< n tokens, `step` at a time, after `depth` others
};

/// One thing to measure, repeatedly.
struct BenchTest {
  BenchKind kind = BenchKind::kLoad;
  std::size_t n_tokens = 0;
  std::size_t depth = 0;
  std::size_t batch = 512;
  int threads = 0;  ///< 0: the CPUs this process may use
  bool cache = true;
  std::size_t step = 1;  ///< kGenerate: tokens a call, logits of each
  bool packed = false;   ///< kLoad, kFirstToken: with a packed cache

  bool operator==(const BenchTest&) const = default;
  /// Whether the figure is a time and not a rate.
  bool is_latency() const { return kind == BenchKind::kLoad || kind == BenchKind::kFirstToken; }
  /// "load", "ttft@packed", "pp512", "tg128@d1536", "tg128@x8", "tg128@nocache".
  std::string name() const;
};

/// Lists as on the command line; every combination is a test.
struct BenchLists {
  std::vector<std::size_t> prompt = {512};
  std::vector<std::size_t> generate = {128};
  std::vector<std::size_t> depth = {0};
  std::vector<std::size_t> batch = {512};
  std::vector<int> threads = {0};
  std::vector<std::size_t> steps = {};  ///< generate once more, so many tokens at a time
  bool load = true;                     ///< measure loading and the first token
  bool packed = false;                  ///< and once more with a packed cache
  bool no_cache = false;                ///< generate once more without KV cache
};

/// Tests in the order of a round: grouped by threads, as another count means another load; then by
/// batch; by rising depth, so that a session goes on where it is. 0 tokens means no such test.
std::vector<BenchTest> make_plan(const BenchLists& lists);

/// Positions that the longest test of `plan` needs.
std::size_t context_needed(const std::vector<BenchTest>& plan);

/// What of the model the figures depend on.
struct BenchModel {
  std::string name;
  std::string type;  ///< "Q4_K_M" as the file says, else its commonest weight type
  std::uint64_t file_bytes = 0;
  std::uint64_t n_weights = 0;
  std::uint64_t weight_bytes = 0;  ///< read by each pass over the model
  std::uint64_t layer_macs = 0;    ///< multiply-adds of a token in the layers' matrices
  std::uint64_t output_macs = 0;   ///< and in the output matrix, where logits are wanted
};

/// Reads the metadata of the GGUF at `path`. weight_bytes is Model::weight_bytes()'s to fill in.
Result<BenchModel> describe_model(const std::string& path);

struct Spread {
  double median = 0;
  double min = 0;
  double max = 0;
};
Spread spread_of(std::span<const double> values);

/// Seconds of the parts of a start.
struct StartParts {
  LoadTimes load = {};
  double first_token = 0;  ///< kFirstToken: a sequence, and the prompt's evaluation with packing
};

/// What was measured of one test.
struct Measurement {
  BenchTest test;
  int threads = 0;  ///< those that ran
  Isa isa = Isa::kScalar;
  KvType kv = KvType::kF16;
  Compute compute = Compute::kInt8;
  std::vector<double> seconds = {};        ///< of each repetition
  std::vector<double> token_seconds = {};  ///< kGenerate one by one: of each token
  std::vector<StartParts> starts = {};     ///< kLoad, kFirstToken: of each repetition
  std::uint64_t peak_rss_bytes = 0;        ///< largest of all repetitions
  PassProfile profile = {};                ///< of all repetitions, if it was asked for
};

/// Tokens/s of a rate, milliseconds of a latency; one value a repetition.
std::vector<double> figures(const Measurement& measurement);

/// Passes over the weights in one repetition: a step each, a batch each for prompts, and every
/// earlier batch again without a cache; a load reads the file once and is no pass.
std::uint64_t weight_passes(const BenchTest& test);
/// 10^9 bytes/s: of weights in median time, or of the file for kLoad; nothing for kFirstToken.
std::optional<double> gb_per_s(const BenchModel& model, const Measurement& measurement);
/// 10^9 multiply-adds/s in weight matrices in median time; nothing for latencies.
std::optional<double> gmac_per_s(const BenchModel& model, const Measurement& measurement);

}  // namespace llm
