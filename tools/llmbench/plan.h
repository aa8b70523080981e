#pragma once

#include <cstddef>
#include <string>
#include <vector>

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

}  // namespace llm
