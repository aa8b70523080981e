#include "tools/llmbench/plan.h"

#include <fmt/core.h>

#include <algorithm>

namespace llm {
namespace {

template <typename T>
std::vector<T> sorted(std::vector<T> values) {
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

}  // namespace

std::string BenchTest::name() const {
  switch (kind) {
    case BenchKind::kLoad:
      return packed ? "load@packed" : "load";
    case BenchKind::kFirstToken:
      return packed ? "ttft@packed" : "ttft";
    case BenchKind::kPrompt:
    case BenchKind::kGenerate:
      break;
  }
  std::string text = fmt::format("{}{}", kind == BenchKind::kPrompt ? "pp" : "tg", n_tokens);
  if (depth > 0) text += fmt::format("@d{}", depth);
  if (step > 1) text += fmt::format("@x{}", step);
  if (!cache) text += "@nocache";
  return text;
}

std::vector<BenchTest> make_plan(const BenchLists& lists) {
  std::vector<BenchTest> plan;
  const auto add = [&plan](const BenchTest& test) {
    if (std::ranges::find(plan, test) == plan.end()) plan.push_back(test);
  };
  for (const int threads : lists.threads) {
    for (const bool packed : {false, true}) {
      if (!lists.load || (packed && !lists.packed)) continue;
      add({.kind = BenchKind::kLoad, .threads = threads, .packed = packed});
      add({.kind = BenchKind::kFirstToken, .n_tokens = 8, .threads = threads, .packed = packed});
    }
    for (const std::size_t batch : lists.batch) {
      for (const std::size_t depth : sorted(lists.depth)) {
        BenchTest test{.depth = depth, .batch = batch, .threads = threads};
        const auto add_lengths = [&](BenchKind kind, const std::vector<std::size_t>& lengths) {
          test.kind = kind;
          for (const std::size_t n : lengths) {
            test.n_tokens = n;
            if (n > 0) add(test);
          }
        };
        add_lengths(BenchKind::kPrompt, lists.prompt);
        add_lengths(BenchKind::kGenerate, lists.generate);
        for (const std::size_t step : lists.steps) {
          test.step = step;
          add_lengths(BenchKind::kGenerate, lists.generate);
        }
        test.step = 1;
        test.cache = false;
        if (lists.no_cache) add_lengths(BenchKind::kGenerate, lists.generate);
      }
    }
  }
  return plan;
}

std::size_t context_needed(const std::vector<BenchTest>& plan) {
  std::size_t most = 0;
  for (const BenchTest& test : plan) most = std::max(most, test.depth + test.n_tokens);
  return most;
}

}  // namespace llm
