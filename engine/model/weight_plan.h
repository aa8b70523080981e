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

}  // namespace llm

#endif  // LLM_ENGINE_MODEL_WEIGHT_PLAN_H_
