#include "quant/kernels/matmul.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace llm {
namespace {

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

/// Panels of a worker; of a batch in whole register tiles.
Worker::Range panel_share(Worker worker, const PackedMatrix& w, std::size_t n_tokens) {
  return worker.share(w.n_panels(), n_tokens > 1 ? contract::kMaxTilePanels : 1);
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

Worker::Range matmul_rows(Worker worker, const PackedMatrix& w, std::size_t n_tokens) {
  const Worker::Range panels = panel_share(worker, w, n_tokens);
  return {std::min(panels.begin * PackedMatrix::kPanelRows, w.n_rows()),
          std::min(panels.end * PackedMatrix::kPanelRows, w.n_rows())};
}

void matmul(const KernelTable& kernels, Worker worker, const PackedMatrix& w,
            const ActivationMatrix& x, float* y, std::size_t y_stride, Epilogue epilogue,
            Workspace& workspace) {
  LLM_CHECK(x.n_cols() == w.n_cols());
  LLM_CHECK(workspace.size() >= matmul_workspace_bytes(x.n_tokens()));
  const ActivationFormat native = activation_format(w.type());
  LLM_CHECK(x.format() == native || x.format() == ActivationFormat::kF32);
  const Worker::Range panels = panel_share(worker, w, x.n_tokens());
  if (panels.begin >= panels.end) return;
  kernels.matmul({.type = w.type(),
                  .dequantize = x.format() != native,
                  .panels = w.panel(0),
                  .n_rows = w.n_rows(),
                  .n_cols = w.n_cols(),
                  .panel_begin = panels.begin,
                  .panel_end = panels.end,
                  .x = x.data(),
                  .n_tokens = x.n_tokens(),
                  .y = y,
                  .y_stride = y_stride,
                  .add = epilogue == Epilogue::kAdd,
                  .workspace = workspace.data()});
}

}  // namespace llm
