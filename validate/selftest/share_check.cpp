#include "validate/selftest/share_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <string>

#include "quant/formats/reference/matmul.h"
#include "quant/kernels/matmul.h"
#include "validate/selftest/kernel_case.h"
#include "validate/selftest/matrix_verdict.h"

namespace llm {
namespace {

constexpr std::size_t kRows = 24'039;
constexpr int kTeams[] = {1, 2, 3, 7};
constexpr std::size_t kTokens[] = {1, 3};

/// y = W x, computed in the tasks of a team of `count`, NaN where none of them wrote.
Result<std::vector<float>> team_product(const KernelTable& table, const PackedMatrix& w,
                                        std::span<const float> x, int count) {
  const std::size_t n = x.size() / w.n_cols();
  const ActivationFormat format = activation_format(w.type());
  LLM_TRY(auto memory, AlignedBuffer<std::byte>::allocate(
                           ActivationMatrix::bytes(format, n, w.n_cols()), "self check"));
  LLM_TRY(Workspace workspace, Workspace::allocate(matmul_workspace_bytes(n), "self check"));
  ActivationMatrix activations(memory.span(), format, n, w.n_cols());
  for (std::size_t t = 0; t < n; ++t)
    activations.store(table, t, x.subspan(t * w.n_cols(), w.n_cols()));
  std::vector<float> y(n * w.n_rows(), std::numeric_limits<float>::quiet_NaN());
  const RowTasks tasks(w, n, count);
  for (std::size_t i = 0; i < tasks.size(); ++i)
    matmul(table, w, tasks[i], activations, y.data(), w.n_rows(), Epilogue::kStore, workspace);
  return y;
}

Result<CheckResult> check_type(const KernelTable& table, WeightType type) {
  const BlockTraits& traits = block_traits(type);
  const std::size_t n_cols = std::max<std::size_t>(traits.block_weights, 32);
  const std::string name = fmt::format("shares of {} rows, {}", kRows, traits.name);
  const auto bytes = draw_matrix(type, kRows, n_cols, Codes::kRandom);
  LLM_TRY(const PackedMatrix w, PackedMatrix::pack(type, kRows, n_cols, bytes, "self check"));
  for (const std::size_t n_tokens : kTokens) {
    const auto x = draw(Values::kPlain, n_tokens * n_cols, 1);
    std::vector<float> expected(n_tokens * kRows);
    reference::matmul({type, kRows, n_cols, bytes}, x, expected);
    for (const int count : kTeams) {
      LLM_TRY(const auto y, team_product(table, w, x, count));
      Mismatch wrong;
      for (std::size_t i = 0; i < y.size(); ++i) wrong.look(i % kRows, y[i], expected[i]);
      if (wrong.count == 0) continue;
      return CheckResult{name, false,
                         fmt::format("{}: team of {}, {} tokens: {} products differ, first row {} "
                                     "(panel {} of {}): {} and {}",
                                     isa_name(table.isa), count, n_tokens, wrong.count, wrong.row,
                                     wrong.row / PackedMatrix::kPanelRows, w.n_panels(),
                                     wrong.actual, wrong.expected)};
    }
  }
  return CheckResult{name, true, "teams of 1, 2, 3 and 7; 1 and 3 tokens"};
}

/// What the shares of a team of `count` of n items, in groups, have wrong; empty: nothing.
std::string share_fault(int count, std::size_t n, std::size_t group) {
  std::size_t next = 0;
  for (int id = 0; id < count; ++id) {
    const auto [begin, end] = Worker{id, count}.share(n, group);
    if (begin > end || (begin != next && begin != end))
      return fmt::format("worker {} of {} takes {} .. {} of {}, need from {} on", id, count, begin,
                         end, n, next);
    if (begin != end) next = end;
  }
  if (next == n) return {};
  return fmt::format("{} workers take {} of {} items in groups of {}", count, next, n, group);
}

CheckResult check_every_team() {
  constexpr int kMostWorkers = 64;
  constexpr std::size_t kMostItems = 200;
  for (int count = 1; count <= kMostWorkers; ++count) {
    for (std::size_t n = 0; n <= kMostItems; ++n) {
      for (const std::size_t group : {1, 4, 16}) {
        const std::string fault = share_fault(count, n, group);
        if (!fault.empty()) return {"shares of teams", false, fault};
      }
    }
  }
  return {"shares of teams", true, "1 to 64 workers, 0 to 200 items, groups of 1, 4 and 16"};
}

}  // namespace

Result<std::vector<CheckResult>> check_shares(const KernelTable& table,
                                              std::span<const WeightType> types) {
  std::vector<CheckResult> results;
  for (const WeightType type : types) {
    LLM_TRY(CheckResult result, check_type(table, type));
    results.push_back(std::move(result));
  }
  results.push_back(check_every_team());
  return results;
}

}  // namespace llm
