#include "engine/model/weight_plan.h"

#include <algorithm>

#include "base/aligned_buffer.h"
#include "base/checked_size.h"

namespace llm {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kPieceBytes = std::size_t{128} << 10;

std::size_t stride_of(const PlacedMatrix& matrix) {
  return row_bytes(matrix.shape.type, matrix.shape.n_cols);
}

}  // namespace

const TensorView& tensor_of(const ModelFile& model, const TensorRole& role, int layer) {
  return role.view.of(model.tensors, layer);
}

Result<WeightPlan> plan_weights(const ModelFile& model) {
  WeightPlan plan;
  CheckedSize end(0);
  for (const auto& [role, layer] : roles_of_model(model.config.n_layers)) {
    if (!role->is_matrix()) continue;
    const TensorView& view = tensor_of(model, *role, layer);
    if (view.empty()) continue;
    const PackedShape shape{view.type, view.n_rows, view.n_cols};
    const auto offset = end.align_up(kAlignment).value();
    const auto bytes = shape.bytes().value();
    if (!offset || !bytes) return detail::out_of_memory(UINT64_MAX, view.name);
    plan.matrices.push_back({role, layer, &view, shape, static_cast<std::size_t>(*offset)});
    end = CheckedSize(*offset) + *bytes;
  }
  const auto bytes = end.value();
  if (!bytes) return detail::out_of_memory(UINT64_MAX, "weights");
  plan.bytes = static_cast<std::size_t>(*bytes);
  return plan;
}

std::size_t PanelRange::row_bytes() const {
  const std::size_t first = begin * PackedShape::kPanelRows;
  return (std::min(end * PackedShape::kPanelRows, matrix->shape.n_rows) - first) *
         stride_of(*matrix);
}

Status read_rows(const ModelFile& model, PanelRange range, std::span<std::byte> out) {
  const PlacedMatrix& matrix = *range.matrix;
  const std::span<const std::byte> file = matrix.view->data;
  const std::size_t stride = stride_of(matrix);
  std::size_t row = range.begin * PackedShape::kPanelRows;
  if (!is_reordered(model.config, *matrix.role))
    return model.file.read(file.subspan(row * stride, out.size()), out);
  for (; !out.empty(); ++row, out = out.subspan(stride)) {
    const std::size_t from = file_row(model.config, *matrix.role, row);
    LLM_RETURN_IF_ERROR(model.file.read(file.subspan(from * stride, stride), out.first(stride)));
  }
  return Ok{};
}

void pack_panels(PanelRange range, std::span<const std::byte> rows, std::span<std::byte> packed) {
  const PackedShape& shape = range.matrix->shape;
  for (std::size_t p = range.begin; p < range.end; ++p) {
    const std::size_t size = shape.rows_of_panel(p) * stride_of(*range.matrix);
    pack_panel(shape, p, rows.first(size), packed.first(shape.panel_bytes()));
    rows = rows.subspan(size);
    packed = packed.subspan(shape.panel_bytes());
  }
}

std::size_t panels_per_piece(const PackedShape& shape) {
  return std::max<std::size_t>(1, kPieceBytes / shape.panel_bytes());
}

void for_all_panels(std::span<const PlacedMatrix> matrices, int n_threads,
                    const std::function<void(Worker, PanelRange)>& work) {
  std::vector<PanelRange> pieces;
  for (const PlacedMatrix& matrix : matrices) {
    const std::size_t n = matrix.shape.n_panels();
    const std::size_t step = panels_per_piece(matrix.shape);
    for (std::size_t begin = 0; begin < n; begin += step)
      pieces.push_back({&matrix, begin, std::min(begin + step, n)});
  }
  run_parallel(n_threads, [&](Worker worker) {
    worker.take_tasks(pieces.size(), [&](std::size_t i) { work(worker, pieces[i]); });
  });
}

}  // namespace llm
