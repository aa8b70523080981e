#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "engine/gguf/gguf_file.h"
#include "engine/model/hyper_parameters.h"
#include "engine/model/weights.h"

namespace llm {

/// s of docs/numerics.md, "Adapters".
inline float adapter_factor(float alpha, float scale, std::size_t rank) {
  if (alpha == 0) return scale;
  return static_cast<float>(double{alpha} * double{scale} / static_cast<double>(rank));
}

/// What an adapter's file has for one tensor of a model: NAME.lora_a, (rank, columns of the
/// tensor), and NAME.lora_b, (rows of the tensor, rank).
struct FileUpdate {
  std::string_view name;  ///< the model's tensor
  const GgufTensor* a = nullptr;
  const GgufTensor* b = nullptr;

  std::size_t rank() const { return static_cast<std::size_t>(a->dims[1]); }
};

/// A GGUF of low-rank updates (LoRA), checked without its model (docs/adapters.md).
struct AdapterFile {
  MappedFile file;
  GgufFile gguf;
  std::string architecture;         ///< of the model
  float alpha = 0;                  ///< 0: factors are not divided by the rank
  std::vector<FileUpdate> updates;  ///< in the order of their names; at least one
};

/// Errors: those of open_gguf_file(); kUnsupported for what is no adapter of this kind; kMalformed
/// for tensors without their partner, or whose shapes do not fit each other; kNonFinite.
/// Cost: reads the file.
Result<AdapterFile> open_adapter_file(const std::string& path);

/// Errors: kMalformed where the model has no tensor of that name (nullptr), or `tensor` has not the
/// rows and columns of the update; kUnsupported where it is no matrix that rows are multiplied by.
Status check_update(const FileUpdate& update, const GgufTensor* tensor);

/// Adds s B A to rows [first_row, first_row + n) of the model's tensor, dequantized: in f64, each
/// sum rounded to f32 once. @param rows  (n, columns). @pre check_update()
void merge_update(const AdapterFile& adapter, const FileUpdate& update, float scale,
                  std::size_t first_row, std::span<float> rows);

/// What is added to a matrix's products: B (s (A x)).
struct LowRankUpdate {
  PackedMatrix a;         ///< (rank, n_cols)
  PackedMatrix b;         ///< (n_rows, rank), rows in the order of the matrix
  float alpha = 0;        ///< as AdapterFile::alpha
  std::size_t place = 0;  ///< of its A x among those of the same layer, in floats

  std::size_t rank() const { return a.n_rows(); }
  float factor(float scale) const { return adapter_factor(alpha, scale, rank()); }
};

/// The updates of a model's matrices by one adapter. Immutable.
class Adapter {
 public:
  /// @param weights  of the model; the updates are found by the places of its matrices
  /// Errors: as open_adapter_file(); kMalformed for another architecture, or a tensor that the
  /// model lacks or has in another shape; kUnsupported for tensors that are not multiplied by rows
  /// (embeddings, norms) and for experts; kResource.
  static Result<std::shared_ptr<const Adapter>> load(const std::string& path,
                                                     const HyperParameters& config,
                                                     const ModelWeights& weights, bool hash_file);

  /// The update of that matrix of the model, or nullptr.
  const LowRankUpdate* of(const PackedMatrix& w) const {
    const auto found = updates_.find(&w);
    return found == updates_.end() ? nullptr : &found->second;
  }
  /// Floats that A x of a row takes, for all updates of a layer.
  std::size_t width() const { return width_; }
  std::size_t size() const { return updates_.size(); }
  const std::string& path() const { return path_; }
  const std::string& file_sha256() const { return file_sha256_; }  ///< empty unless asked for

 private:
  Status pack(const AdapterFile& in, const HyperParameters& config, const ModelWeights& weights);

  std::unordered_map<const PackedMatrix*, LowRankUpdate> updates_;
  std::size_t width_ = 0;
  std::string path_;
  std::string file_sha256_;
};

}  // namespace llm
