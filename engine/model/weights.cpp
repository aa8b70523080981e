#include "engine/model/weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "base/thread_team.h"
#include "engine/model/tensor_roles.h"
#include "quant/formats/finite.h"

namespace llm {
namespace {

class Loader {
 public:
  Loader(const ModelFile& model, int n_threads,
         const std::function<void(std::uint64_t, std::uint64_t)>& progress)
      : model_(model), n_threads_(n_threads), progress_(progress) {}

  Result<ModelWeights> load() {
    ModelWeights weights;
    weights.layers.resize(model_.config.n_layers);
    for (const auto& [role, layer] : roles_of_model(model_.config.n_layers)) {
      const TensorView& view = role->view.of(model_.tensors, layer);
      if (view.empty()) continue;
      if (role->is_matrix()) {
        LLM_TRY(role->matrix.of(weights, layer), matrix(*role, view));
      } else {
        LLM_TRY(role->vector.of(weights, layer), vector(*role, view));
      }
    }
    return weights;
  }

 private:
  Error nonfinite(const TensorView& tensor, std::size_t row, std::size_t block) const {
    const MappedFile::Part& part = model_.file.part_at(tensor.data.data());
    const BlockTraits& traits = block_traits(tensor.type);
    const std::size_t index = row * (tensor.n_cols / traits.block_weights) + block;
    return Error{
        .code = ErrorCode::kNonFinite,
        .field = tensor.name,
        .message = fmt::format("found NaN or Inf in {} block {} (row {}), need finite values",
                               traits.name, index, row),
        .offset = static_cast<std::uint64_t>(tensor.data.data() - part.bytes.data()) +
                  index * traits.block_bytes,
        .file = part.path};
  }

  void done(const TensorView& tensor) {
    model_.file.drop_pages(tensor.data);
    bytes_done_ += tensor.data.size();
    if (progress_) progress_(bytes_done_, model_.file.file_bytes());
  }

  Result<AlignedBuffer<float>> vector(const TensorRole& role, const TensorView& tensor) {
    if (const auto block = first_nonfinite_block(tensor.type, tensor.data)) {
      return nonfinite(tensor, 0, *block);
    }
    LLM_TRY(auto values, AlignedBuffer<float>::allocate(tensor.n_cols, tensor.name));
    const GgufArray<float> in_file(tensor.data);  // vectors are F32
    for (std::size_t i = 0; i < tensor.n_cols; ++i)
      values[i] = in_file[file_row(model_.config, role, i)];
    done(tensor);
    return values;
  }

  Result<PackedMatrix> matrix(const TensorRole& role, const TensorView& tensor) {
    LLM_TRY(PackedMatrix packed,
            PackedMatrix::allocate(tensor.type, tensor.n_rows, tensor.n_cols, tensor.name));
    const std::size_t stride = row_bytes(tensor.type, tensor.n_cols);
    const bool reordered = is_reordered(model_.config, role);
    std::atomic<bool> bad = false;
    run_parallel(n_threads_, [&](Worker worker) {
      std::vector<std::byte> gathered(reordered ? PackedMatrix::kPanelRows * stride : 0);
      const auto [begin, end] = worker.share(packed.n_panels());
      for (std::size_t p = begin; p < end && !bad; ++p) {
        const std::size_t first = p * PackedMatrix::kPanelRows;
        const std::size_t rows = std::min(PackedMatrix::kPanelRows, tensor.n_rows - first);
        auto bytes = tensor.data.subspan(first * stride, rows * stride);
        if (reordered) {
          for (std::size_t r = 0; r < rows; ++r) {
            const std::size_t from = file_row(model_.config, role, first + r);
            std::ranges::copy(tensor.data.subspan(from * stride, stride),
                              gathered.begin() + static_cast<std::ptrdiff_t>(r * stride));
          }
          bytes = std::span(gathered).first(rows * stride);
        }
        packed.pack_panel(p, bytes);
        // Packing has just brought the rows into the cache.
        if (first_nonfinite_block(tensor.type, bytes)) bad = true;
      }
    });
    if (bad) return locate_nonfinite(tensor);
    done(tensor);
    return packed;
  }

  Error locate_nonfinite(const TensorView& tensor) const {
    const std::size_t stride = row_bytes(tensor.type, tensor.n_cols);
    for (std::size_t row = 0; row < tensor.n_rows; ++row) {
      const auto bytes = tensor.data.subspan(row * stride, stride);
      if (const auto block = first_nonfinite_block(tensor.type, bytes)) {
        return nonfinite(tensor, row, *block);
      }
    }
    return Error{.code = ErrorCode::kIntegrity,
                 .field = tensor.name,
                 .message = "found other bytes than a moment ago, need a file that nobody writes",
                 .file = model_.file.path()};
  }

  const ModelFile& model_;
  int n_threads_;
  const std::function<void(std::uint64_t, std::uint64_t)>& progress_;
  std::uint64_t bytes_done_ = 0;
};

}  // namespace

std::uint64_t ModelWeights::bytes_per_token() const {
  std::uint64_t bytes = output().bytes();
  for (const auto& [role, layer] : roles_of_model(layers.size())) {
    if (role->is_matrix() && role->per_layer) bytes += role->matrix.of(*this, layer).bytes();
  }
  return bytes;
}

Result<ModelWeights> load_weights(
    const ModelFile& model, int n_threads,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  return Loader(model, n_threads, progress).load();
}

}  // namespace llm
