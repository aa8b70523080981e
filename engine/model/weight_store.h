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

/// Where the packed matrices of a model are: in memory, to which pack_all() packs them; or in a
/// mapped file that has them packed. Before pack_all() a product's panels are packed for it alone,
/// into a buffer of the thread's own: a first pass does not wait until the system has
/// found memory for the whole model. Scales are checked for NaN and Inf as they are packed. Any
/// thread may call anything.
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
  bool in_memory() const { return in_memory_.load(std::memory_order_acquire); }

  /// Packs what is left and lets go of the file. Once: later calls return what the first one did.
  /// Errors: kNonFinite naming tensor and block; kIo; kIntegrity for a file that has changed.
  Status pack_all(int n_threads, const Progress& progress);

  /// What went wrong in packing so far, the first by the plan's order; kIntegrity for a file, the
  /// model's or a mapped cache, that has changed. Errors: as pack_all(). Cost: a system call.
  Status status() const;

  /// Checks the scales of one matrix, without packing it. Errors: kNonFinite, kIo.
  Status check_finite(const PlacedMatrix& matrix, int n_threads);

 private:
  class Source;

  WeightStore() = default;
  Status pack_now(int n_threads, const Progress& progress);
  /// Packs panels into `packed`; zeros for those that cannot be read.
  void pack(PanelRange range, std::span<std::byte> packed);
  /// Reads and checks panels' rows. @return whether they can be packed
  bool read(PanelRange range, std::span<std::byte> rows);
  void note(const PlacedMatrix& matrix, std::optional<Error> error);

  WeightPlan plan_;
  AlignedBuffer<std::byte> memory_;   ///< of reserve()
  std::optional<PackedCache> cache_;  ///< of mapped()
  std::span<const std::byte> panels_;
  std::atomic<bool> in_memory_ = false;

  /// What went wrong first, by the plan's order.
  struct Fault {
    const PlacedMatrix* matrix;
    std::optional<Error> error;  ///< nothing: NaN or Inf, to be located
  };
  mutable std::mutex fault_mutex_;
  std::optional<Fault> fault_;
  std::atomic<const PlacedMatrix*> faulty_ = nullptr;  ///< fault_'s

  std::mutex packing_;
  std::optional<Status> packed_;           ///< what pack_all() gave; under packing_
  mutable std::shared_mutex file_mutex_;   ///< of file_
  std::shared_ptr<const ModelFile> file_;  ///< nullptr once in_memory_
};

}  // namespace llm

#endif  // LLM_ENGINE_MODEL_WEIGHT_STORE_H_
