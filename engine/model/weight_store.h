#ifndef LLM_ENGINE_MODEL_WEIGHT_STORE_H_
#define LLM_ENGINE_MODEL_WEIGHT_STORE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "engine/model/model_file.h"
#include "engine/model/packed_cache.h"
#include "engine/model/progress.h"
#include "engine/model/weight_plan.h"

namespace llm {

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
  /// As many from panel `next` on are what this thread will probably want next.
  /// @return where these lie in the file, or nullptr
  const std::byte* lend(PanelRange range, std::size_t next, std::span<std::byte> packed);
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

#endif  // LLM_ENGINE_MODEL_WEIGHT_STORE_H_
