#include "engine/model/weight_store.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "base/checked_size.h"
#include "base/per_thread.h"
#include "quant/formats/finite.h"

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
    const std::size_t from = file_row(model.config, *matrix.role, matrix.layer, row);
    LLM_RETURN_IF_ERROR(visit(file.subspan(from * stride, stride)));
  }
  return Ok{};
}

Status locate_nonfinite(const ModelFile& model, const TensorView& tensor) {
  if (const auto block = first_nonfinite_block(tensor.type, tensor.data))
    return nonfinite_error(model, tensor, *block);
  return in_file(Error{ErrorCode::kIntegrity, tensor.name,
                       "found different bytes from before, need an unchanged file"},
                 model.file.path());
}

/// The beginning of `memory`, which grows to hold it.
std::span<std::byte> first_of(std::vector<std::byte>& memory, std::size_t n_bytes) {
  if (memory.size() < n_bytes) memory.resize(n_bytes);
  return std::span(memory).first(n_bytes);
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
    if (model.config.is_mtp() && !role->per_layer) continue;  // the trunk's
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

/// Panels of one matrix: in memory, or lent from the file until they are.
class WeightStore::Source final : public PanelSource {
 public:
  Source(WeightStore& store, const PlacedMatrix& matrix)
      : store_(store),
        matrix_(matrix),
        n_lent_(std::max<std::size_t>(1, kLentBytes / (kUnit * matrix.shape.panel_bytes())) *
                kUnit) {}

  PanelRun panels(std::size_t begin, std::size_t end) const override {
    if (!store_.is_packed({&matrix_, begin, end})) {
      const std::shared_lock lock(store_.file_mutex_);  // the last pack_more() lets go of the file
      if (!store_.in_memory()) return lend(begin, end);
    }
    return {PanelRange{&matrix_, begin, end}.in(store_.panels_).data(), end};
  }

 private:
  // What is packed and multiplied stays in a core's own cache, and leaves room for the next.
  static constexpr std::size_t kLentBytes = std::size_t{32} << 10;
  static constexpr std::size_t kUnit = contract::kMaxTilePanels;

  PanelRun lend(std::size_t begin, std::size_t until) const {
    const PanelRange range{&matrix_, begin, std::min(begin + n_lent_, until)};
    static const PerThread<std::vector<std::byte>> memory;
    const auto packed =
        first_of(memory.mine(), (range.end - range.begin) * matrix_.shape.panel_bytes());
    return {packed.data(), range.end, store_.lend(range, packed)};
  }

  WeightStore& store_;
  const PlacedMatrix& matrix_;
  const std::size_t n_lent_;
};

Result<std::shared_ptr<WeightStore>> WeightStore::reserve(std::shared_ptr<const ModelFile> file) {
  std::shared_ptr<WeightStore> store(new WeightStore());
  LLM_TRY(store->plan_, plan_weights(*file));
  LLM_TRY(store->memory_, AlignedBuffer<std::byte>::allocate(store->plan_.bytes, "weights"));
  store->panels_ = std::as_const(store->memory_).span();
  store->checked_ = std::vector<std::atomic<bool>>(store->plan_.panels);
  const std::span<const PlacedMatrix> matrices = store->plan_.matrices;
  for (const PlacedMatrix& matrix : matrices.subspan(1)) add_pieces(matrix, store->pieces_);
  add_pieces(matrices.front(), store->pieces_);
  store->file_ = std::move(file);
  return store;
}

std::shared_ptr<WeightStore> WeightStore::mapped(WeightPlan plan, PackedCache cache) {
  std::shared_ptr<WeightStore> store(new WeightStore());
  store->plan_ = std::move(plan);
  store->panels_ = cache.panels;
  store->cache_ = std::move(cache);
  store->packed_panels_ = store->plan_.panels;
  return store;
}

PackedMatrix WeightStore::matrix(const PlacedMatrix& placed) {
  return PackedMatrix(placed.shape, {shared_from_this(), panels_.data() + placed.offset},
                      in_memory() ? nullptr : std::make_shared<const Source>(*this, placed),
                      placed.view->scales);
}

void WeightStore::note(const PlacedMatrix& matrix, std::optional<Error> error) {
  const std::lock_guard lock(fault_mutex_);
  if (!fault_ || &matrix < fault_->matrix) fault_ = Fault{&matrix, std::move(error)};
  faulty_ = fault_->matrix;
}

std::span<std::atomic<bool>> WeightStore::checked(PanelRange range) {
  return std::span(checked_).subspan(range.matrix->first_panel + range.begin,
                                     range.end - range.begin);
}

bool WeightStore::is_checked(PanelRange range) {
  const auto is_set = [](const auto& flag) { return flag.load(std::memory_order_relaxed); };
  return std::ranges::all_of(checked(range), is_set);
}

bool WeightStore::check(PanelRange range, std::span<const std::byte> rows) {
  if (first_nonfinite_block(range.matrix->shape.type, rows)) {
    note(*range.matrix, std::nullopt);
    return false;
  }
  for (auto& flag : checked(range)) flag.store(true, std::memory_order_relaxed);
  return true;
}

bool WeightStore::read(PanelRange range, std::span<std::byte> rows) {
  const Status read = read_rows(*file_, range, rows);
  if (!read.ok()) {
    note(*range.matrix, read.error());
    return false;
  }
  return check(range, rows);
}

const std::byte* WeightStore::lend(PanelRange range, std::span<std::byte> packed) {
  static const PerThread<std::vector<std::byte>> rooms;
  std::vector<std::byte>& room = rooms.mine();
  // What is on its way, of matrices that are read in turn.
  thread_local std::array<const std::byte*, 4> on_its_way{};
  const auto index = static_cast<std::size_t>(range.matrix - plan_.matrices.data());
  const std::byte*& ahead = on_its_way[index % on_its_way.size()];
  const auto rows = map_rows(*file_, range, first_of(room, range.row_bytes()));
  const bool is_new = !is_checked(range);  // to this process: not mapped, so not prefetched
  if (is_new || rows.data() != ahead) read_through(rows);
  if (is_new && !check(range, rows)) {
    std::ranges::fill(packed, std::byte{0});
    return nullptr;
  }
  const std::size_t n_panels = range.end - range.begin;
  const bool more =
      range.end + n_panels <= range.matrix->shape.n_panels() && rows.data() != room.data();
  ahead = more ? rows.data() + rows.size() : nullptr;
  pack_panels(range, rows, packed, ahead);
  return ahead;
}

Status WeightStore::pack_more(int n_threads, std::size_t bytes, const Progress& progress) {
  const std::lock_guard lock(packing_);
  LLM_RETURN_IF_ERROR(status());
  if (in_memory()) return Ok{};
  std::size_t end = packed_pieces_;
  for (std::size_t sum = 0; sum < bytes && end < pieces_.size(); ++end)
    sum += pieces_[end].in(panels_).size();
  const auto pieces = std::span(pieces_).subspan(packed_pieces_, end - packed_pieces_);
  std::atomic<std::size_t> done = 0;
  const auto report = [&] {
    if (progress) progress("load", done, static_cast<std::size_t>(file_->file.file_bytes()));
  };
  for_all(pieces, n_threads, [&](Worker worker, PanelRange range) {
    if (const PlacedMatrix* faulty = faulty_; faulty != nullptr && faulty <= range.matrix) return;
    static const PerThread<std::vector<std::byte>> room;
    const auto rows = first_of(room.mine(), range.row_bytes());
    if (read(range, rows)) pack_panels(range, rows, range.in(memory_.span()));
    done += range.row_bytes();
    if (worker.id == 0) report();
  });
  report();  // the first worker may have had no piece
  LLM_RETURN_IF_ERROR(status());
  drop_pages(pieces);
  packed_pieces_ = end;
  const PanelRange last = pieces.back();
  const std::lock_guard file_lock(file_mutex_);
  packed_panels_.store(last.matrix->first_panel + last.end, std::memory_order_release);
  if (in_memory()) file_.reset();
  return Ok{};
}

void WeightStore::drop_pages(std::span<const PanelRange> pieces) const {
  for (std::size_t i = 0; i < pieces.size();) {
    PanelRange run = pieces[i];
    for (++i; i < pieces.size() && pieces[i].matrix == run.matrix; ++i) run.end = pieces[i].end;
    const PackedShape& shape = run.matrix->shape;
    const std::size_t stride = row_bytes(shape.type, shape.n_cols);
    file_->file.drop_pages(run.matrix->view->data.subspan(
        run.begin * PackedShape::kPanelRows * stride, run.row_bytes()));
  }
}

Status WeightStore::check_finite(const PlacedMatrix& matrix, int n_threads) {
  for_all_panels(std::span(&matrix, 1), n_threads, [&](Worker, PanelRange range) {
    std::vector<std::byte> rows(range.row_bytes());
    (void)read(range, rows);
  });
  return status();
}

Status WeightStore::status() const {
  if (cache_) return cache_->file.check_unchanged("packed cache");
  if (in_memory()) return Ok{};
  const std::shared_lock lock(file_mutex_);
  if (file_ == nullptr) return Ok{};
  const std::lock_guard fault_lock(fault_mutex_);
  if (!fault_) return file_->file.check_unchanged();
  return fault_->error ? Status(*fault_->error) : locate_nonfinite(*file_, *fault_->matrix->view);
}

}  // namespace llm
