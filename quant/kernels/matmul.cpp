#include "quant/kernels/matmul.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "base/cpu_features.h"

namespace llm {
namespace {

/// How many bytes before they are read weights are prefetched; 0: never.
struct Prefetch {
  std::size_t near;  ///< into L1
  std::size_t far;   ///< into L2
};

/// Measured (docs/performance.md): the prefetchers of Intel's CPUs stop at the end of a page. Those
/// of AMD's read as fast as memory can where lines are read in order, each once, and every prefetch
/// by us costs; they do not where blocks begin inside of lines.
Prefetch prefetch_of(const PackedMatrix& w, std::size_t n_tokens) {
  static const bool amd = cpu_name().starts_with("AMD");
  constexpr std::size_t kLine = 64;
  if (!amd || n_tokens > kFewTokens) return {0, 4096};
  if (PackedMatrix::kPanelRows * block_traits(w.type()).block_bytes % kLine == 0) return {0, 0};
  return {128, 1024};
}

std::size_t kernel_row_bytes(ActivationFormat format, std::size_t n_cols) {
  switch (format) {
    case ActivationFormat::kQ8_K:
      return n_cols / contract::kSuperBlock * sizeof(KernelQ8K);
    case ActivationFormat::kQ8_32:
      return n_cols / contract::kBlock * sizeof(KernelQ8x32);
    case ActivationFormat::kF32:
      break;
  }
  return n_cols * sizeof(float);
}

/// MatmulArgs::panels where panel `begin` lies at `first`.
const std::byte* panel_zero(const PackedMatrix& w, const std::byte* first, std::size_t begin) {
  return reinterpret_cast<const std::byte*>(reinterpret_cast<std::uintptr_t>(first) -
                                            begin * w.panel_bytes());
}

}  // namespace

std::size_t ActivationMatrix::bytes(ActivationFormat format, std::size_t n_tokens,
                                    std::size_t n_cols) {
  return n_tokens * kernel_row_bytes(format, n_cols);
}

ActivationMatrix::ActivationMatrix(std::span<std::byte> memory, ActivationFormat format,
                                   std::size_t n_tokens, std::size_t n_cols)
    : data_(memory.data()), format_(format), n_tokens_(n_tokens), n_cols_(n_cols) {
  LLM_CHECK(memory.size() >= bytes(format, n_tokens, n_cols));
  LLM_CHECK(n_cols % activation_block_size(format) == 0);
}

void ActivationMatrix::store(const KernelTable& kernels, std::size_t t, std::span<const float> x) {
  LLM_CHECK(t < n_tokens_ && x.size() == n_cols_);
  switch (format_) {
    case ActivationFormat::kQ8_K:
      kernels.quantize_q8k(x.data(), n_cols_, reinterpret_cast<KernelQ8K*>(data_) + t, n_tokens_);
      return;
    case ActivationFormat::kQ8_32:
      kernels.quantize_q8x32(x.data(), n_cols_, reinterpret_cast<KernelQ8x32*>(data_) + t,
                             n_tokens_);
      return;
    case ActivationFormat::kF32:
      std::memcpy(data_ + t * n_cols_ * sizeof(float), x.data(), n_cols_ * sizeof(float));
      return;
  }
}

void ActivationMatrix::copy_row(std::size_t t, const ActivationMatrix& from, std::size_t from_t) {
  LLM_CHECK(from.format_ == format_ && from.n_cols_ == n_cols_);
  LLM_CHECK(t < n_tokens_ && from_t < from.n_tokens_);
  const auto copy = [&]<typename Block>(std::size_t n_blocks) {
    const auto* source = reinterpret_cast<const Block*>(from.data_) + from_t;
    auto* to = reinterpret_cast<Block*>(data_) + t;
    for (std::size_t b = 0; b < n_blocks; ++b) to[b * n_tokens_] = source[b * from.n_tokens_];
  };
  switch (format_) {
    case ActivationFormat::kQ8_K:
      return copy.operator()<KernelQ8K>(n_cols_ / KernelQ8K::kSize);
    case ActivationFormat::kQ8_32:
      return copy.operator()<KernelQ8x32>(n_cols_ / KernelQ8x32::kSize);
    case ActivationFormat::kF32:
      std::memcpy(data_ + t * n_cols_ * sizeof(float),
                  from.data_ + from_t * n_cols_ * sizeof(float), n_cols_ * sizeof(float));
      return;
  }
}

RowTasks::RowTasks(const PackedMatrix& w, std::size_t n_tokens, int n_workers, std::size_t unit)
    : n_rows_(w.n_rows()) {
  const auto workers = static_cast<std::size_t>(n_workers);
  constexpr std::size_t kBatchTasks = 16;
  constexpr std::size_t kLeast = std::size_t{64} << 10;
  constexpr std::size_t kMost = std::size_t{256} << 10;
  const bool few =
      n_tokens <= kFewTokens && activation_format(w.type()) == ActivationFormat::kQ8_32;
  const bool batch = n_tokens > 1 && !few;
  unit = std::lcm(unit, PackedMatrix::kPanelRows * (batch ? contract::kMaxTilePanels : 1));
  const std::size_t panels =
      batch ? w.n_panels() / (kBatchTasks * workers)
            : std::clamp(w.bytes() / (4 * workers), kLeast, kMost) / w.panel_bytes();
  const std::size_t units = panels * PackedMatrix::kPanelRows / unit;
  rows_per_task_ = std::max<std::size_t>(units, 1) * unit;
}

void matmul(const KernelTable& kernels, const PackedMatrix& w, Worker::Range rows,
            const ActivationMatrix& x, float* y, std::size_t y_stride, Epilogue epilogue,
            Workspace& workspace) {
  constexpr std::size_t kPanelRows = PackedMatrix::kPanelRows;
  LLM_CHECK(x.n_cols() == w.n_cols());
  LLM_CHECK(workspace.size() >= matmul_workspace_bytes(x.n_tokens()));
  LLM_CHECK(rows.begin % kPanelRows == 0 && rows.end <= w.n_rows());
  LLM_CHECK(rows.end % kPanelRows == 0 || rows.end == w.n_rows());
  const ActivationFormat native = activation_format(w.type());
  LLM_CHECK(x.format() == native || x.format() == ActivationFormat::kF32);
  if (rows.begin >= rows.end) return;
  const Prefetch prefetch = prefetch_of(w, x.n_tokens());
  const std::size_t end = (rows.end + kPanelRows - 1) / kPanelRows;
  for (std::size_t begin = rows.begin / kPanelRows; begin < end;) {
    const PanelRun run = w.panels(begin, end);
    // What is read next lies after what is read now, past the task's end too, or where the run
    // says.
    const bool goes_on = run.next == nullptr;
    const std::size_t run_end = (goes_on ? w.n_panels() : run.end) * w.panel_bytes();
    const std::size_t ahead = goes_on ? std::min(prefetch.far, run_end) : 0;
    const std::byte* const panels = panel_zero(w, run.first, begin);
    kernels.matmul({.type = w.type(),
                    .dequantize = x.format() != native,
                    .panels = panels,
                    .n_rows = w.n_rows(),
                    .n_cols = w.n_cols(),
                    .panel_begin = begin,
                    .panel_end = run.end,
                    .x = x.data(),
                    .n_tokens = x.n_tokens(),
                    .y = y,
                    .y_stride = y_stride,
                    .add = epilogue == Epilogue::kAdd,
                    .workspace = workspace.data(),
                    .next = goes_on ? panels + ahead : panel_zero(w, run.next, begin),
                    .next_end = goes_on && ahead == 0 ? 0 : run_end - ahead,
                    .near = goes_on ? prefetch.near : 0});
    begin = run.end;
  }
  if (!w.has_scales()) return;
  LLM_CHECK(epilogue == Epilogue::kStore);
  for (std::size_t t = 0; t < x.n_tokens(); ++t)
    for (std::size_t r = rows.begin; r < rows.end; ++r) y[t * y_stride + r] *= w.scale_of(r);
}

}  // namespace llm
