#ifndef LLM_ENGINE_MODEL_WEIGHT_PLAN_H_
#define LLM_ENGINE_MODEL_WEIGHT_PLAN_H_

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_team.h"
#include "engine/model/model_file.h"
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
  std::size_t offset;  ///< of the first panel, a multiple of 64

  std::size_t bytes() const { return shape.n_panels() * shape.panel_bytes(); }
};

/// Where the packed matrices of a model lie: one behind the other, in the order of the data flow.
struct WeightPlan {
  std::vector<PlacedMatrix> matrices;
  std::size_t bytes = 0;  ///< of all
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

/// Packs them. @pre packed.size() is that of range.in()
void pack_panels(PanelRange range, std::span<const std::byte> rows, std::span<std::byte> packed);

/// Neighbouring panels that together fit into a core's own cache, as in the file and packed.
std::size_t panels_per_piece(const PackedShape& shape);

/// Calls `work` for all panels of `matrices` on `n_threads` threads: in pieces, each once, taken by
/// whoever is free.
void for_all_panels(std::span<const PlacedMatrix> matrices, int n_threads,
                    const std::function<void(Worker, PanelRange)>& work);

}  // namespace llm

#endif  // LLM_ENGINE_MODEL_WEIGHT_PLAN_H_
