#include "engine/model/weight_store.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "quant/formats/finite.h"

namespace llm {
namespace {

Status locate_nonfinite(const ModelFile& model, const TensorView& tensor) {
  if (const auto block = first_nonfinite_block(tensor.type, tensor.data))
    return nonfinite_error(model, tensor, *block);
  return Error{.code = ErrorCode::kIntegrity,
               .field = tensor.name,
               .message = "found other bytes than a moment ago, need a file that nobody writes",
               .file = model.file.path()};
}

}  // namespace

/// Panels of one matrix, from the file until pack_all() is done.
class WeightStore::Source final : public PanelSource {
 public:
  Source(WeightStore& store, const PlacedMatrix& matrix) : store_(store), matrix_(matrix) {}
  const std::byte* panels(std::size_t begin, std::size_t end) const override {
    const PanelRange range{&matrix_, begin, end};
    if (!store_.in_memory()) {
      const std::shared_lock lock(store_.file_mutex_);  // pack_all() lets go of the file
      if (!store_.in_memory()) {
        thread_local std::vector<std::byte> packed;
        const std::size_t n_bytes = (end - begin) * matrix_.shape.panel_bytes();
        if (packed.size() < n_bytes) packed.resize(n_bytes);
        store_.pack(range, std::span(packed).first(n_bytes));
        return packed.data();
      }
    }
    return range.in(store_.panels_).data();
  }

 private:
  WeightStore& store_;
  const PlacedMatrix& matrix_;
};

Result<std::shared_ptr<WeightStore>> WeightStore::reserve(std::shared_ptr<const ModelFile> file) {
  std::shared_ptr<WeightStore> store(new WeightStore());
  LLM_TRY(store->plan_, plan_weights(*file));
  LLM_TRY(store->memory_, AlignedBuffer<std::byte>::allocate(store->plan_.bytes, "weights"));
  store->panels_ = std::as_const(store->memory_).span();
  store->file_ = std::move(file);
  return store;
}

std::shared_ptr<WeightStore> WeightStore::mapped(WeightPlan plan, PackedCache cache) {
  std::shared_ptr<WeightStore> store(new WeightStore());
  store->plan_ = std::move(plan);
  store->panels_ = cache.panels;
  store->cache_ = std::move(cache);
  store->in_memory_ = true;
  return store;
}

PackedMatrix WeightStore::matrix(const PlacedMatrix& placed) {
  return PackedMatrix(placed.shape, {shared_from_this(), panels_.data() + placed.offset},
                      in_memory() ? nullptr : std::make_shared<const Source>(*this, placed));
}

void WeightStore::note(const PlacedMatrix& matrix, std::optional<Error> error) {
  const std::lock_guard lock(fault_mutex_);
  if (!fault_ || &matrix < fault_->matrix) fault_ = Fault{&matrix, std::move(error)};
  faulty_ = fault_->matrix;
}

bool WeightStore::read(PanelRange range, std::span<std::byte> rows) {
  const PlacedMatrix& matrix = *range.matrix;
  const Status read = read_rows(*file_, range, rows);
  if (!read.ok()) {
    note(matrix, read.error());
    return false;
  }
  if (!first_nonfinite_block(matrix.shape.type, rows)) return true;
  note(matrix, std::nullopt);
  return false;
}

void WeightStore::pack(PanelRange range, std::span<std::byte> packed) {
  const PlacedMatrix& matrix = *range.matrix;
  const std::size_t step = panels_per_piece(matrix.shape);
  thread_local std::vector<std::byte> rows;
  for (std::size_t p = range.begin; p < range.end; p += step) {
    const PanelRange piece{&matrix, p, std::min(p + step, range.end)};
    if (rows.size() < piece.row_bytes()) rows.resize(piece.row_bytes());
    const auto in_file = std::span(rows).first(piece.row_bytes());
    const std::size_t panel = matrix.shape.panel_bytes();
    const auto out = packed.subspan((p - range.begin) * panel, (piece.end - p) * panel);
    if (read(piece, in_file)) {
      pack_panels(piece, in_file, out);
    } else {
      std::ranges::fill(out, std::byte{0});
    }
  }
}

Status WeightStore::pack_all(int n_threads, const Progress& progress) {
  const std::lock_guard lock(packing_);
  if (!packed_) packed_ = pack_now(n_threads, progress);
  return *packed_;
}

Status WeightStore::pack_now(int n_threads, const Progress& progress) {
  std::atomic<std::size_t> done = 0;
  for_all_panels(plan_.matrices, n_threads, [&](Worker worker, PanelRange range) {
    if (const PlacedMatrix* faulty = faulty_; faulty != nullptr && faulty <= range.matrix) return;
    pack(range, range.in(memory_.span()));
    done += range.row_bytes();
    if (worker.id == 0 && progress)
      progress("load", done, static_cast<std::size_t>(file_->file.file_bytes()));
  });
  LLM_RETURN_IF_ERROR(status());
  const std::lock_guard lock(file_mutex_);
  in_memory_.store(true, std::memory_order_release);
  file_.reset();
  return Ok{};
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
