#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/forward/shared_expert.h"

namespace llm {

/// The feed-forward of a layer as a mixture of experts (docs/numerics.md, "Experts"): each row goes
/// through the experts that its router chooses. A product of an expert runs over all rows that go
/// through it, so of its weights each is read once, and those of other experts are not.
///
/// A row has a slot for each of its experts. Slots are ordered by expert, then by row, so that an
/// expert's are neighbours. T = rows of the pass, k = FfnSpec::n_used, S = T * k slots.
class Experts {
 public:
  /// Errors: kResource.
  static Result<Experts> create(const Model& model, const PassSizes& sizes);

  /// @param spec  the layer's, with experts
  void run(PassWorker& at, std::size_t layer, const FfnSpec& spec);

 private:
  /// The experts of a layer.
  struct Matrices {
    std::vector<PackedMatrix> gate;
    std::vector<PackedMatrix> up;
    std::vector<PackedMatrix> down;
  };
  /// An expert's slots.
  struct Group {
    std::uint32_t expert;
    std::size_t first;
    std::size_t n;
  };

  explicit Experts(const HyperParameters& config) : config_(config) {}

  /// The experts of every row, and their slots.
  void choose(PassWorker& at, std::size_t layer, const FfnSpec& spec, const InputRows& normed);
  /// Orders slots once all rows have their experts.
  void order_slots(const FfnSpec& spec, std::size_t n_rows);
  const Group& group_of(std::size_t slot) const { return groups_[group_of_slot_[slot]]; }
  /// The rows of a group, `features` each, of `values` by slot.
  InputRows rows_of(const Group& group, float* values, std::size_t features);
  /// What gate and up of a group read: the pass's rows where all go through the expert.
  InputRows inputs_of(const Group& group, const InputRows& normed);
  /// Runs task(group, rows) for the products of every group with its expert's `matrices`.
  template <typename Task>
  void each_product(PassWorker& at, std::span<const PackedMatrix> matrices, Task task);
  /// Sends values by slot as (T, k * features).
  void tap(PassWorker& at, std::size_t layer, const FfnSpec& spec, std::string_view name,
           float* values, std::size_t features);

  const HyperParameters& config_;
  std::vector<Matrices> layers_;  ///< empty where a layer has none

  AlignedBuffer<float> router_;             ///< (T, n_experts)
  std::vector<std::uint32_t> chosen_;       ///< (T, k), ascending
  std::vector<float> weights_;              ///< (T, k)
  std::vector<std::size_t> slot_of_;        ///< (T, k)
  std::vector<std::size_t> row_of_slot_;    ///< (S)
  std::vector<std::size_t> group_of_slot_;  ///< (S)
  std::vector<std::size_t> gathered_;       ///< slots whose rows are copied
  std::vector<Group> groups_;               ///< those of several slots first
  std::size_t n_batches_ = 0;               ///< groups of several slots
  std::vector<std::size_t> count_;          ///< (n_experts): slots of each
  InputMemory slots_;                       ///< what products read, by slot
  AlignedBuffer<float> gate_;               ///< (S, d_ff)
  AlignedBuffer<float> up_;                 ///< (S, d_ff)
  AlignedBuffer<float> out_;                ///< (S, d_model)
  AlignedBuffer<float> mixed_;              ///< (T, d_model)
  SharedExpert shared_;
};

}  // namespace llm
