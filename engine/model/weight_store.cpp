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

/// Panels of one matrix, from the file.
class WeightStore::Source final : public PanelSource {
 public:
  Source(WeightStore& store, const PlacedMatrix& matrix) : store_(store), matrix_(matrix) {}
  void pack(std::size_t begin, std::size_t end) const override {
    if (store_.in_memory()) return;
    const std::shared_lock lock(store_.file_mutex_);  // pack_all() lets go of the file
    if (!store_.in_memory()) store_.pack({&matrix_, begin, end});
  }

 private:
  WeightStore& store_;
  const PlacedMatrix& matrix_;
};

Result<std::shared_ptr<WeightStore>> WeightStore::reserve(std::shared_ptr<const ModelFile> file) {
  std::shared_ptr<WeightStore> store(new WeightStore());
  LLM_TRY(store->plan_, plan_weights(*file));
  LLM_TRY(store->memory_, AlignedBuffer<std::byte>::allocate(store->plan_.bytes, "weights"));
  store->states_ = std::vector<std::atomic<Panel>>(store->plan_.n_panels);
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

void WeightStore::pack_taken(PanelRange range, std::span<std::byte> rows) {
  // Also when memory runs out: those who wait must go on.
  struct Publish {
    WeightStore& store;
    PanelRange range;
    ~Publish() {
      for (std::size_t p = range.begin; p < range.end; ++p) {
        store.state(*range.matrix, p).store(Panel::kPacked, std::memory_order_release);
        store.state(*range.matrix, p).notify_all();
      }
    }
  } publish{*this, range};
  if (read(range, rows)) pack_panels(range, rows, range.in(memory_.span()));
}

void WeightStore::pack(PanelRange range) {
  const PlacedMatrix& matrix = *range.matrix;
  const std::size_t step = panels_per_piece(matrix.shape);
  thread_local std::vector<std::byte> rows;
  const auto take = [&](std::size_t p) {
    auto expected = Panel::kInFile;
    return state(matrix, p).compare_exchange_strong(expected, Panel::kTaken);
  };
  for (std::size_t p = range.begin; p < range.end;) {
    const std::size_t end = std::min(p + step, range.end);
    const std::size_t room = PanelRange{&matrix, p, end}.row_bytes();
    if (rows.size() < room) rows.resize(room);
    const std::size_t begin = p;
    while (p < end && take(p)) ++p;
    const PanelRange taken{&matrix, begin, p};
    if (p > begin) pack_taken(taken, std::span(rows).first(taken.row_bytes()));
    if (p < end) ++p;  // another's
  }
  for (std::size_t p = range.begin; p < range.end; ++p) {
    while (state(matrix, p).load(std::memory_order_acquire) != Panel::kPacked)
      state(matrix, p).wait(Panel::kTaken, std::memory_order_acquire);
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
    pack(range);
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
  if (in_memory()) return Ok{};
  const std::shared_lock lock(file_mutex_);
  if (file_ == nullptr) return Ok{};
  const std::lock_guard fault_lock(fault_mutex_);
  if (!fault_) return file_->file.check_unchanged();
  return fault_->error ? Status(*fault_->error) : locate_nonfinite(*file_, *fault_->matrix->view);
}

}  // namespace llm
