#include "engine/model/weight_plan.h"

#include <algorithm>
#include <cstring>

#include "base/aligned_buffer.h"
#include "base/checked_size.h"

namespace llm {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kPieceBytes = std::size_t{128} << 10;

std::size_t stride_of(const PlacedMatrix& matrix) {
  return row_bytes(matrix.shape.type, matrix.shape.n_cols);
}

/// Calls visit(bytes) for the range's rows in the mapped file, in the order in which they are
/// packed: all at once where they lie one after the other, else one by one.
template <typename Visit>
Status visit_rows(const ModelFile& model, PanelRange range, Visit visit) {
  const PlacedMatrix& matrix = *range.matrix;
  const std::span<const std::byte> file = matrix.view->data;
  const std::size_t stride = stride_of(matrix);
  const std::size_t begin = range.begin * PackedShape::kPanelRows;
  const std::size_t n_bytes = range.row_bytes();
  if (!is_reordered(model.config, *matrix.role))
    return visit(file.subspan(begin * stride, n_bytes));
  for (std::size_t row = begin; row < begin + n_bytes / stride; ++row) {
    const std::size_t from = file_row(model.config, *matrix.role, row);
    LLM_RETURN_IF_ERROR(visit(file.subspan(from * stride, stride)));
  }
  return Ok{};
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
  const std::size_t n = plan.matrices.size();
  for (std::size_t i = 0; i < n; ++i) {
    PlacedMatrix& matrix = plan.matrices[(i + 1) % n];
    matrix.first_panel = plan.panels;
    plan.panels += matrix.shape.n_panels();
  }
  return plan;
}

std::size_t PanelRange::row_bytes() const {
  const std::size_t first = begin * PackedShape::kPanelRows;
  return (std::min(end * PackedShape::kPanelRows, matrix->shape.n_rows) - first) *
         stride_of(*matrix);
}

Status read_rows(const ModelFile& model, PanelRange range, std::span<std::byte> out) {
  return visit_rows(model, range, [&](std::span<const std::byte> rows) -> Status {
    const auto part = out.first(rows.size());
    out = out.subspan(rows.size());
    return model.file.read(rows, part);
  });
}

std::span<const std::byte> map_rows(const ModelFile& model, PanelRange range,
                                    std::span<std::byte> room) {
  std::span<const std::byte> all = room;
  (void)visit_rows(model, range, [&](std::span<const std::byte> rows) -> Status {
    if (rows.size() == all.size()) {
      all = rows;
    } else {
      std::memcpy(room.data(), rows.data(), rows.size());
      room = room.subspan(rows.size());
    }
    return Ok{};
  });
  return all;
}

void read_through(std::span<const std::byte> bytes) {
  constexpr std::size_t kLine = 64;
  const volatile std::byte* const first = bytes.data();
  for (std::size_t i = 0; i < bytes.size(); i += kLine) (void)first[i];
}

void pack_panels(PanelRange range, std::span<const std::byte> rows, std::span<std::byte> packed,
                 const std::byte* next) {
  const PackedShape& shape = range.matrix->shape;
  for (std::size_t p = range.begin; p < range.end; ++p) {
    const std::size_t size = shape.rows_of_panel(p) * stride_of(*range.matrix);
    pack_panel(shape, p, rows.first(size), packed.first(shape.panel_bytes()), next);
    if (next != nullptr) next += size;
    rows = rows.subspan(size);
    packed = packed.subspan(shape.panel_bytes());
  }
}

void add_pieces(const PlacedMatrix& matrix, std::vector<PanelRange>& pieces) {
  const std::size_t n = matrix.shape.n_panels();
  const std::size_t step = std::max<std::size_t>(1, kPieceBytes / matrix.shape.panel_bytes());
  for (std::size_t begin = 0; begin < n; begin += step)
    pieces.push_back({&matrix, begin, std::min(begin + step, n)});
}

void for_all(std::span<const PanelRange> pieces, int n_threads,
             const std::function<void(Worker, PanelRange)>& work) {
  run_parallel(n_threads, [&](Worker worker) {
    worker.take_tasks(pieces.size(), [&](std::size_t i) { work(worker, pieces[i]); });
  });
}

void for_all_panels(std::span<const PlacedMatrix> matrices, int n_threads,
                    const std::function<void(Worker, PanelRange)>& work) {
  std::vector<PanelRange> pieces;
  for (const PlacedMatrix& matrix : matrices) add_pieces(matrix, pieces);
  for_all(pieces, n_threads, work);
}

}  // namespace llm
