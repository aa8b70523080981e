#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "base/thread_team.h"
#include "engine/model/model_file.h"
#include "engine/model/packed_cache.h"
#include "engine/model/progress.h"
#include "engine/model/tensor_roles.h"
#include "quant/kernels/packed_matrix.h"

namespace llm {

/// The file's tensor of a role; empty where it has none.
const TensorView& tensor_of(const ModelFile& model, const TensorRole& role, int layer);

/// A matrix of a model, in its file and in the memory of its packed weights.
struct PlacedMatrix {
  const TensorRole* role;
  int layer;
  const TensorView* view;  ///< in the file
  PackedShape shape;
  std::size_t offset;           ///< of the first panel, a multiple of 64
  std::size_t first_panel = 0;  ///< how many panels of the model are packed before its own

  std::size_t bytes() const { return shape.n_panels() * shape.panel_bytes(); }
};

/// Where the packed matrices of a model lie: one after the other, in the order of the data flow.
/// They are packed in that order too, but for the embedding, the first, which is the last: a pass
/// takes few rows of it, or reads it at its end, as the output.
struct WeightPlan {
  std::vector<PlacedMatrix> matrices;
  std::size_t bytes = 0;   ///< of all
  std::size_t panels = 0;  ///< of all
};

/// @param model  borrowed by the plan
/// Errors: kResource for sizes that no memory holds.
Result<WeightPlan> plan_weights(const ModelFile& model);

/// Neighbouring panels of a matrix.
struct PanelRange {
  const PlacedMatrix* matrix;
  std::size_t begin;
  std::size_t end;

  /// Their rows as in the file, in its order.
  std::size_t row_bytes() const;
  /// Packed, where the matrix is packed into `memory`.
  template <typename Byte>
  std::span<Byte> in(std::span<Byte> memory) const {
    const std::size_t panel = matrix->shape.panel_bytes();
    return memory.subspan(matrix->offset + begin * panel, (end - begin) * panel);
  }
};

/// Reads the rows of panels in the order in which they are packed. @pre out.size() ==
/// range.row_bytes(). Errors: those of MappedFile::read().
Status read_rows(const ModelFile& model, PanelRange range, std::span<std::byte> out);

/// The same rows in the mapped file, where they lie one after the other; else copied to `room`.
/// @pre room.size() == range.row_bytes(); see MappedFile for a file that becomes shorter
std::span<const std::byte> map_rows(const ModelFile& model, PanelRange range,
                                    std::span<std::byte> room);

/// Reads bytes that packing will read, so that it finds them in the core's own cache if they fit:
/// hardware follows one straight line much faster than the 16 lines that packing reads.
void read_through(std::span<const std::byte> bytes);

/// Packs them. @pre packed.size() is that of range.in()
/// @param next  as many bytes that will be read after `rows`, as in pack_panel(); nullptr: none
void pack_panels(PanelRange range, std::span<const std::byte> rows, std::span<std::byte> packed,
                 const std::byte* next = nullptr);

/// All panels of a matrix in pieces: panels that together fit into a core's own cache, as in the
/// file and packed.
void add_pieces(const PlacedMatrix& matrix, std::vector<PanelRange>& pieces);

/// Calls `work` for all pieces on `n_threads` threads, each once, taken by whoever is free.
void for_all(std::span<const PanelRange> pieces, int n_threads,
             const std::function<void(Worker, PanelRange)>& work);

/// The same for all panels of `matrices`.
void for_all_panels(std::span<const PlacedMatrix> matrices, int n_threads,
                    const std::function<void(Worker, PanelRange)>& work);

/// Where the packed matrices of a model are: in memory, to which pack_more() packs them, one after
/// the other in the plan's order; or in a mapped file that has them packed. Panels that are not in
/// memory yet are lent: packed for one product from the mapped file, into a buffer of the thread's
/// own, so that no pass waits until the system has found memory for the whole model. Scales are
/// checked for NaN and Inf when they are first read. Any thread may call anything.
class WeightStore : public std::enable_shared_from_this<WeightStore> {
 public:
  /// Reserves memory, which is none before it is written. Errors: kResource.
  static Result<std::shared_ptr<WeightStore>> reserve(std::shared_ptr<const ModelFile> file);

  /// The matrices of `plan` as a cache has them. Nothing is read.
  static std::shared_ptr<WeightStore> mapped(WeightPlan plan, PackedCache cache);

  /// A matrix of the plan, whose panels come from here and which keeps them.
  PackedMatrix matrix(const PlacedMatrix& placed);
  const WeightPlan& plan() const { return plan_; }
  /// The plan's memory. @pre in_memory()
  std::span<const std::byte> panels() const { return panels_; }
  /// Whether all panels are packed. Stays true.
  bool in_memory() const { return packed_panels() == plan_.panels; }
  /// Of the plan's panels, how many are packed; they are the first in the order of packing.
  std::size_t packed_panels() const { return packed_panels_.load(std::memory_order_acquire); }

  /// Packs the next panels, `bytes` of them or a little more, at least one; with the last one lets
  /// go of the file. Panels of a call that fails stay in the file, and later calls fail, too.
  /// Errors: kNonFinite naming tensor and block; kIo; kIntegrity for a file that has changed.
  Status pack_more(int n_threads, std::size_t bytes, const Progress& progress = {});

  /// Packs what is left. Errors: as pack_more().
  Status pack_all(int n_threads, const Progress& progress = {}) {
    return pack_more(n_threads, SIZE_MAX, progress);
  }

  /// What went wrong in packing so far, the first by the plan's order; kIntegrity for a file, the
  /// model's or a mapped cache, that has changed. Errors: as pack_more(). Cost: a system call.
  Status status() const;

  /// Checks the scales of one matrix, without packing it. Errors: kNonFinite, kIo.
  Status check_finite(const PlacedMatrix& matrix, int n_threads);

 private:
  class Source;

  WeightStore() = default;
  bool is_packed(PanelRange range) const {
    return range.matrix->first_panel + range.end <= packed_panels();
  }
  /// Packs panels from the mapped file into `packed`; zeros if they must not be used.
  /// @return where as many after them lie in the file, or nullptr
  const std::byte* lend(PanelRange range, std::span<std::byte> packed);
  /// Reads and checks panels' rows. @return whether they can be packed
  bool read(PanelRange range, std::span<std::byte> rows);
  /// The flags of these panels.
  std::span<std::atomic<bool>> checked(PanelRange range);
  bool is_checked(PanelRange range);
  /// @return whether all scales are finite
  bool check(PanelRange range, std::span<const std::byte> rows);
  void note(const PlacedMatrix& matrix, std::optional<Error> error);
  /// Tells the system that what pieces were mapped from is not needed any more.
  void drop_pages(std::span<const PanelRange> pieces) const;

  WeightPlan plan_;
  AlignedBuffer<std::byte> memory_;   ///< of reserve()
  std::optional<PackedCache> cache_;  ///< of mapped()
  std::span<const std::byte> panels_;
  std::vector<PanelRange> pieces_;  ///< of all panels, as they are packed
  std::size_t packed_pieces_ = 0;   ///< under packing_
  std::atomic<std::size_t> packed_panels_ = 0;
  std::vector<std::atomic<bool>> checked_;  ///< the panels whose scales are finite

  /// What went wrong first, by the plan's order.
  struct Fault {
    const PlacedMatrix* matrix;
    std::optional<Error> error;  ///< nothing: NaN or Inf, to be located
  };
  mutable std::mutex fault_mutex_;
  std::optional<Fault> fault_;
  std::atomic<const PlacedMatrix*> faulty_ = nullptr;  ///< fault_'s

  std::mutex packing_;
  mutable std::shared_mutex file_mutex_;   ///< of file_
  std::shared_ptr<const ModelFile> file_;  ///< nullptr once in_memory()
};

}  // namespace llm
