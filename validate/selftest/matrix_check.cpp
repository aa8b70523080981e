#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <random>
#include <utility>

#include "base/thread_team.h"
#include "engine/model/tensor_roles.h"
#include "quant/formats/reference/dot.h"
#include "quant/formats/reference/matmul.h"
#include "quant/kernels/matmul.h"
#include "validate/selftest/kernel_case.h"
#include "validate/selftest/matrix_verdict.h"
#include "validate/selftest/tally.h"

namespace llm {
namespace {

constexpr std::size_t kAllRows = SIZE_MAX;
constexpr int kTeamsOfMatrix[] = {2, 3, 7};

/// A matrix as the engine holds it and as the file has it.
struct Pair {
  const PackedMatrix* packed;
  const TensorView* in_file;
  const TensorRole* role;
  int layer;
};

std::vector<Pair> matrices_of(const ModelWeights& weights, const ModelTensors& tensors) {
  std::vector<Pair> out;
  for (const auto& [role, layer] : roles_of_model(weights.layers.size())) {
    if (!role->is_matrix()) continue;
    const TensorView& view = role->view.of(tensors, layer);
    if (!view.empty()) out.push_back({&role->matrix.of(weights, layer), &view, role, layer});
  }
  return out;
}

/// Activations of unit size with what real ones have: a few large outliers, a block of zeros.
std::vector<float> noise(std::size_t n_tokens, std::size_t n_cols, std::size_t seed) {
  std::mt19937 random(static_cast<std::mt19937::result_type>(seed));
  std::vector<float> x(n_tokens * n_cols);
  for (float& v : x) {
    const auto bits = static_cast<std::uint32_t>(random());
    v = static_cast<float>(bits >> 8) * 0x1p-23F - 1.0F;
    if (bits % 256 == 0) v *= 40.0F;
  }
  if (n_cols > 256) std::fill_n(x.begin(), 256, 0.0F);
  return x;
}

constexpr std::size_t kGroup = contract::kMaxTilePanels * contract::kPanelRows;

/// Whether row r is computed when only `rows` of them are: runs of 32, spread over the matrix.
bool chosen(std::size_t r, std::size_t n_rows, std::size_t rows) {
  if (rows >= n_rows) return true;
  const std::size_t groups = (n_rows + kGroup - 1) / kGroup;
  const std::size_t wanted = std::max<std::size_t>(1, rows / kGroup);
  const std::size_t stride = std::max<std::size_t>(1, groups / wanted);
  return r / kGroup % stride == stride - 1 || r / kGroup == groups - 1;
}

/// W x for the tokens in x; of a batch only the chosen rows. What is not computed stays NaN.
/// @param team  workers for whom the rows are cut into tasks, which `threads` of them run
Result<std::vector<float>> product(const KernelTable& table, const PackedMatrix& w,
                                   ActivationFormat format, std::span<const float> x,
                                   std::size_t rows, int team, int threads) {
  const std::size_t n = x.size() / w.n_cols();
  LLM_TRY(auto memory, AlignedBuffer<std::byte>::allocate(
                           ActivationMatrix::bytes(format, n, w.n_cols()), "self check"));
  ActivationMatrix activations(memory.span(), format, n, w.n_cols());
  for (std::size_t t = 0; t < n; ++t)
    activations.store(table, t, x.subspan(t * w.n_cols(), w.n_cols()));
  std::vector<float> y(n * w.n_rows(), std::numeric_limits<float>::quiet_NaN());
  std::vector<Workspace> workspaces(static_cast<std::size_t>(threads));
  for (Workspace& workspace : workspaces) {
    LLM_TRY(workspace, Workspace::allocate(matmul_workspace_bytes(n), "self check"));
  }
  const RowTasks tasks(w, n, team);
  run_parallel(threads, [&](Worker worker) {
    Workspace& workspace = workspaces[static_cast<std::size_t>(worker.id)];
    const auto compute = [&](Worker::Range range) {
      matmul(table, w, range, activations, y.data(), w.n_rows(), Epilogue::kStore, workspace);
    };
    if (rows >= w.n_rows())
      return worker.take_tasks(tasks.size(), [&](std::size_t i) { compute(tasks[i]); });
    worker.take_tasks((w.n_rows() + kGroup - 1) / kGroup, [&](std::size_t g) {
      if (!chosen(g * kGroup, w.n_rows(), rows)) return;
      compute({g * kGroup, std::min((g + 1) * kGroup, w.n_rows())});
    });
  });
  return y;
}

class MatrixCheck {
 public:
  MatrixCheck(const Model& model, const ModelFile& file, const MatrixCheckOptions& options)
      : model_(model),
        tensors_(file.tensors),
        pairs_(matrices_of(model.weights(), file.tensors)),
        options_(options) {
    for (const Isa isa : all_isas()) {
      if (isa != Isa::kScalar && isa_supported(isa)) fast_.push_back(kernel_table(isa));
    }
  }

  Result<std::vector<CheckResult>> run() {
    const std::size_t steps = 3 * pairs_.size();
    std::vector<CheckResult> results = {packing(steps), check_vectors(model_, tensors_)};
    for (const bool int8 : {true, false}) {
      start(int8 ? "int8" : "f32");
      for (std::size_t i = 0; i < pairs_.size(); ++i) {
        const bool native_f32 =
            activation_format(pairs_[i].packed->type()) == ActivationFormat::kF32;
        if (int8 || !native_f32) LLM_RETURN_IF_ERROR(check(pairs_[i], int8, i));
        report((int8 ? 1 : 2) * pairs_.size() + i + 1, steps);
      }
      for (const auto& [name, tally] : verdicts_)
        if (tally.n > 0) results.push_back(tally.result(name));
    }
    return results;
  }

 private:
  const KernelTable& best() const { return *kernel_table(best_isa()); }

  void report(std::size_t done, std::size_t total) const {
    if (options_.progress) options_.progress("matrices", done, total);
  }

  CheckResult packing(std::size_t steps) const {
    Tally tally{.of = "matrices"};
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      const auto& [packed, view, role, layer] = pairs_[i];
      const std::size_t row_size = row_bytes(view->type, view->n_cols);
      bool same = packed->type() == view->type && packed->n_rows() == view->n_rows &&
                  packed->n_cols() == view->n_cols;
      std::atomic<std::size_t> first = view->n_rows;
      if (same) {
        run_parallel(options_.threads, [&, view = view, packed = packed, role = role,
                                        layer = layer](Worker worker) {
          std::vector<std::byte> row(row_size);
          const auto range = worker.share(view->n_rows);
          for (std::size_t r = range.begin; r < range.end; ++r) {
            packed->extract_row(packed_row(model_.config(), *role, layer, r), row);
            const std::size_t at = row_in_view(model_.config(), *role, layer, r);
            if (std::memcmp(row.data(), view->data.data() + at * row_size, row_size) == 0) continue;
            std::size_t least = first;
            while (r < least && !first.compare_exchange_weak(least, r)) continue;
            return;
          }
        });
        same = first == view->n_rows;
      }
      tally.add(same, [&, view = view] {
        return fmt::format("{} ({}), row {}", view->name, block_traits(view->type).name,
                           first.load());
      });
      report(i + 1, steps);
    }
    return tally.result("packed weights give back the file's bytes");
  }

  void start(const std::string& mode) {
    verdicts_.clear();
    const auto name = [&](Isa isa, const std::string& what) {
      verdicts_.emplace_back(fmt::format("{}, {}: {}", mode, isa_name(isa), what),
                             Tally{.of = "matrices"});
    };
    const std::string batch =
        fmt::format("matrices, batches of {} as one by one", options_.n_tokens);
    name(Isa::kScalar, "matrices against the definition (R1)");
    name(Isa::kScalar, batch);
    for (const KernelTable* table : fast_) {
      name(table->isa, "matrices against scalar");
      name(table->isa, batch);
    }
    name(best().isa, "matrices shared by teams of 2, 3 and 7");
  }

  Status check(const Pair& pair, bool int8, std::size_t seed) {
    const PackedMatrix& w = *pair.packed;
    const std::size_t n = options_.n_tokens;
    const ActivationFormat format = int8 ? activation_format(w.type()) : ActivationFormat::kF32;
    const std::vector<float> x = noise(n, w.n_cols(), seed);
    std::vector<float> expected(n * w.n_rows());
    const KernelTable& scalar = *kernel_table(Isa::kScalar);
    LLM_RETURN_IF_ERROR(each_single(scalar, w, format, x, [&](std::size_t t, const auto& y) {
      std::ranges::copy(y, token(std::span(expected), w.n_rows(), t).begin());
    }));
    add(0, pair,
        against_definition(pair, int8, token(x, w, 0), std::span(expected).first(w.n_rows())));
    // Tokens that are not taken one by one: what the first set gives that is right on the others.
    bool complete = options_.single_step == 1;
    const std::size_t wanted_rows =
        options_.scalar_batch_rows == 0 ? kAllRows : options_.scalar_batch_rows;
    std::vector<std::vector<float>> batches(1 + fast_.size());
    std::vector<Mismatch> found(1 + fast_.size());
    for (std::size_t i = 0; i < batches.size(); ++i) {
      const KernelTable& table = i == 0 ? scalar : *fast_[i - 1];
      LLM_TRY(batches[i],
              product(table, w, format, x, i == 0 ? wanted_rows : kAllRows, 1, options_.threads));
      found[i] = differences(batches[i], expected, w, {i == 0 ? wanted_rows : kAllRows, true});
      if (i == 0) continue;
      Mismatch one;
      LLM_RETURN_IF_ERROR(each_single(table, w, format, x, [&](std::size_t t, const auto& y) {
        const auto row = token(std::span<const float>(expected), w.n_rows(), t);
        for (std::size_t r = 0; r < y.size(); ++r) one.look(r, y[r], row[r]);
      }));
      add(2 * i, pair, one);
      if (complete || one.count + found[i].count > 0) continue;
      expected = batches[i];
      complete = true;
    }
    std::vector<float> alone;  // on the best set of instructions, of which there may be one
    if (fast_.empty()) {
      LLM_TRY(alone, product(best(), w, format, x, kAllRows, 1, options_.threads));
    } else {
      alone = batches.back();
    }
    Mismatch shared;
    for (const int team : kTeamsOfMatrix) {
      LLM_TRY(const auto y, product(best(), w, format, x, kAllRows, team, options_.threads));
      shared.look_all(differences(y, alone, w, {}));
    }
    add(verdicts_.size() - 1, pair, shared);
    for (std::size_t i = 0; i < batches.size(); ++i) {
      if (complete)
        found[i] = differences(batches[i], expected, w, {i == 0 ? wanted_rows : kAllRows, false});
      add(2 * i + 1, pair, found[i]);
    }
    return Ok{};
  }

  /// Computes the single tokens and hands each product to `use`.
  template <typename Use>
  Status each_single(const KernelTable& table, const PackedMatrix& w, ActivationFormat format,
                     std::span<const float> x, const Use& use) {
    for (std::size_t t = 0; t < options_.n_tokens; t += options_.single_step) {
      LLM_TRY(const auto y, product(table, w, format, token(x, w, t), kAllRows, options_.threads,
                                    options_.threads));
      use(t, y);
    }
    return Ok{};
  }

  template <typename T>
  static std::span<T> token(std::span<T> values, std::size_t features, std::size_t t) {
    return values.subspan(t * features, features);
  }
  static std::span<const float> token(std::span<const float> x, const PackedMatrix& w,
                                      std::size_t t) {
    return token(x, w.n_cols(), t);
  }

  /// `y` against the definition on the file's bytes, quantizer included.
  Mismatch against_definition(const Pair& pair, bool int8, std::span<const float> x,
                              std::span<const float> y) const {
    const TensorView& view = *pair.in_file;
    const ActivationFormat format = int8 ? activation_format(view.type) : ActivationFormat::kF32;
    std::vector<std::byte> activations(activation_row_bytes(format, x.size()));
    quantize_activations(format, x, activations);
    const std::size_t row_size = row_bytes(view.type, view.n_cols);
    std::vector<float> expected(view.n_rows);
    run_parallel(options_.threads, [&](Worker worker) {
      const auto range = worker.share(view.n_rows);
      for (std::size_t r = range.begin; r < range.end; ++r) {
        const std::size_t at = row_in_view(model_.config(), *pair.role, pair.layer, r);
        const auto row = view.data.subspan(at * row_size, row_size);
        const float scale =
            view.scales.empty() ? 1.0F : view.scales[r * view.scales.size() / view.n_rows];
        expected[packed_row(model_.config(), *pair.role, pair.layer, r)] =
            scale * (int8 ? reference::dot_row(view.type, row, activations)
                          : reference::dot_row_f32(view.type, row, x));
      }
    });
    return differences(y, expected, *pair.packed, {});
  }

  /// Which products of a batch are compared.
  struct Part {
    std::size_t rows = kAllRows;
    bool singles_only = false;
  };

  Mismatch differences(std::span<const float> actual, std::span<const float> expected,
                       const PackedMatrix& w, Part part) const {
    Mismatch out;
    for (std::size_t i = 0; i < actual.size(); ++i) {
      const std::size_t r = i % w.n_rows();
      if (part.singles_only && i / w.n_rows() % options_.single_step != 0) continue;
      if (chosen(r, w.n_rows(), part.rows)) out.look(r, actual[i], expected[i]);
    }
    return out;
  }

  void add(std::size_t verdict, const Pair& pair, const Mismatch& found) {
    verdicts_[verdict].second.add(found.count == 0, [&] {
      return fmt::format("{} ({}): {} products, first row {}: {} and {}", pair.in_file->name,
                         block_traits(pair.in_file->type).name, found.count, found.row,
                         found.actual, found.expected);
    });
  }

  const Model& model_;
  const ModelTensors& tensors_;
  std::vector<Pair> pairs_;
  const MatrixCheckOptions& options_;
  std::vector<const KernelTable*> fast_;
  std::vector<std::pair<std::string, Tally>> verdicts_;
};

constexpr std::size_t kManyRows = 24'039;
constexpr int kTeamsOfMany[] = {1, 2, 3, 7};

Result<CheckResult> check_many_rows(const KernelTable& table, WeightType type) {
  const BlockTraits& traits = block_traits(type);
  const std::size_t n_cols = std::max<std::size_t>(traits.block_weights, 32);
  const std::string name = fmt::format("shares of {} rows, {}", kManyRows, traits.name);
  const auto bytes = draw_matrix(type, kManyRows, n_cols, Codes::kRandom);
  LLM_TRY(const PackedMatrix w, PackedMatrix::pack(type, kManyRows, n_cols, bytes, "self check"));
  for (const std::size_t n_tokens : {1, 3}) {
    const auto x = draw(Values::kPlain, n_tokens * n_cols, 1);
    std::vector<float> expected(n_tokens * kManyRows);
    reference::matmul({type, kManyRows, n_cols, bytes}, x, expected);
    for (const int team : kTeamsOfMany) {
      LLM_TRY(const auto y, product(table, w, activation_format(type), x, kAllRows, team, 1));
      Mismatch wrong;
      for (std::size_t i = 0; i < y.size(); ++i) wrong.look(i % kManyRows, y[i], expected[i]);
      if (wrong.count == 0) continue;
      return CheckResult{name, false,
                         fmt::format("{}: team of {}, {} tokens: {} products differ, first row {} "
                                     "(panel {} of {}): {} and {}",
                                     isa_name(table.isa), team, n_tokens, wrong.count, wrong.row,
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

Result<std::vector<CheckResult>> check_matrices(const Model& model, const ModelFile& file,
                                                const MatrixCheckOptions& options) {
  return MatrixCheck(model, file, options).run();
}

Result<std::vector<CheckResult>> check_shares(const KernelTable& table,
                                              std::span<const WeightType> types) {
  std::vector<CheckResult> results;
  for (const WeightType type : types) {
    LLM_TRY(CheckResult result, check_many_rows(table, type));
    results.push_back(std::move(result));
  }
  results.push_back(check_every_team());
  return results;
}

}  // namespace llm
