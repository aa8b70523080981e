#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "base/result.h"
#include "engine/model/adapter.h"
#include "engine/model/hyper_parameters.h"
#include "engine/model/model_file.h"
#include "engine/model/precision.h"
#include "engine/model/progress.h"
#include "engine/model/rope.h"
#include "engine/model/weights.h"
#include "tokenizer/tokenizer.h"

namespace llm {

class Model;

struct LoadOptions {
  Compute compute = Compute::kInt8;
  std::optional<Isa> isa = {};       ///< nothing: the best this CPU supports
  int threads = 0;                   ///< 0: available_cpus()
  bool strict = false;               ///< warnings about the file are errors
  bool hash_file = false;            ///< compute Model::file_sha256(); costs a pass over the file
  std::string expected_sha256 = {};  ///< what file_sha256() must be; empty: anything
  /// What the file must be: a manifest's path (engine/gguf/gguf_manifest.h); an empty one is that
  /// of the first part with kManifestSuffix behind it. Costs a pass over the file.
  std::optional<std::string> manifest = {};
  /// Leaves the weights in the file, from which products pack their panels for themselves, so that
  /// the first token comes sooner; executors pack them to stay, a part before each pass
  /// (packing_time()). Until the last one is packed the file is needed, and mapped
  /// (MappedFile): a change is an error of the next pass, and bytes cut off while a pass reads them
  /// raise SIGBUS.
  bool defer_packing = false;
  /// Directory of packed caches (docs/packed_cache.md): a later start maps the weights instead of
  /// packing them. Empty: none. With a manifest, a cache is compared with the file's bytes first.
  std::string packed_cache = {};
  /// The model that this one is a draft of. Models with a trunk (HyperParameters::d_trunk) need it,
  /// and share its embedding; others do not read it.
  const Model* trunk = nullptr;
  /// Files of adapters that sequences may use (docs/adapters.md).
  std::vector<std::string> adapters = {};
  Progress progress = {};  ///< may be empty
};

/// Seconds of the parts of a load.
struct LoadTimes {
  double open = 0;  ///< opening, parsing and checking the file; its hash and manifest, if wanted
  double tokenizer = 0;
  double weights = 0;  ///< packing, or a cache's checks
};

/// A loaded Llama: weights in memory, and how products with them are computed.
/// Immutable; shared by executors.
class Model final {
 public:
  /// Opens, checks and packs the model at `path`. Errors name file, tensor or key, value and rule
  /// (docs/bad_input.md); an --isa this CPU lacks is kUnsupported; memory is kResource; bytes of
  /// another hash than expected, that differ from the manifest, or that change while they are
  /// hashed and read, are kIntegrity. Cost: reads the file once.
  static Result<std::shared_ptr<const Model>> load(const std::string& path,
                                                   const LoadOptions& options = {});

  /// The model that is the block after `trunk`'s layers (HyperParameters::mtp()), of the file that
  /// it was loaded from. It shares the trunk's embedding, output and options. Errors: as load();
  /// kUnsupported where the file has no such block.
  static Result<std::shared_ptr<const Model>> load_mtp(const std::string& path, const Model& trunk);

  /// Whether every weight is packed or mapped. After load() with defer_packing it is false until
  /// all are packed.
  bool weights_in_memory() const;
  /// Packs the weights that are still in the file; returns at once where none are. Errors: as
  /// load().
  Status pack_weights() const;
  /// Packs some of them: a few MiB, then more until `time` is over. Errors: as load().
  Status pack_weights_for(std::chrono::nanoseconds time) const;
  /// After how many decoded tokens packing all weights to stay has cost no more time than it saved.
  /// It costs time for every weight (the system has to find the memory), and saves time for those
  /// that a token reads: of experts, few.
  std::uint64_t packing_pays_after() const;
  /// The first error met while weights were read from the file since load(); kIntegrity where the
  /// file or the mapped cache has changed. Errors: kNonFinite, kIo, kIntegrity.
  Status check_weights() const;

  /// The same weights with the instruction set, threads and compute of `options`. Both models share
  /// the packed weights, so this costs no time and no memory. Errors: kUnsupported.
  Result<std::shared_ptr<const Model>> variant(const LoadOptions& options) const;
  /// The same weights with another compute.
  Result<std::shared_ptr<const Model>> with_compute(Compute compute) const;

  /// A model of the first `n_layers` and the output, for checks that need few layers. It shares the
  /// packed weights.
  /// @pre 1 <= n_layers <= config().n_layers
  std::shared_ptr<const Model> first_layers(std::size_t n_layers) const;

  /// The same weights, computed with other numbers.
  /// @param change  of norm_eps, of bases and scales in `ropes` and of windows in `layers`, and of
  ///                nothing else
  std::shared_ptr<const Model> with_numbers(
      const std::function<void(HyperParameters&)>& change) const;

  const HyperParameters& config() const { return config_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const std::string& name() const { return name_; }                    ///< general.name
  const std::string& chat_template() const { return chat_template_; }  ///< Jinja, may be empty
  const std::vector<std::string>& warnings() const { return warnings_; }
  std::uint64_t file_bytes() const { return file_bytes_; }
  /// SHA-256, 64 hex digits, of the bytes that this model was made of, whatever stands under its
  /// path since; empty unless LoadOptions asked for it.
  const std::string& file_sha256() const { return file_sha256_; }
  /// The packed cache that is mapped; empty where the weights are in memory of this process.
  const std::string& packed_cache() const { return weights_->packed_cache; }
  const LoadTimes& load_times() const { return load_times_; }
  /// Bytes of weights read to decode one token.
  std::uint64_t weight_bytes() const { return weights_->bytes_per_token(config()); }
  Isa isa() const { return isa_; }
  int threads() const { return threads_; }
  Compute compute() const { return compute_; }
  const ModelWeights& weights() const { return *weights_; }
  /// In the order of LoadOptions::adapters, which is that of their updates.
  std::span<const std::shared_ptr<const Adapter>> adapters() const { return adapters_; }
  /// Of each of config().ropes.
  const std::vector<Rope>& ropes() const { return ropes_; }
  const Rope& rope(std::size_t layer) const { return ropes_[config_.attention(layer).rope]; }

 private:
  void make_ropes();
  Model(const ModelFile& file, ModelWeights weights, Tokenizer tokenizer,
        std::vector<std::string> warnings);
  Status set_options(const LoadOptions& options);

  HyperParameters config_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string name_;
  std::string chat_template_;
  std::vector<std::string> warnings_;
  std::uint64_t file_bytes_ = 0;
  std::string file_sha256_;
  LoadTimes load_times_;
  std::shared_ptr<const ModelWeights> weights_;
  std::vector<std::shared_ptr<const Adapter>> adapters_;
  std::vector<Rope> ropes_;
  Isa isa_ = Isa::kScalar;
  int threads_ = 1;
  Compute compute_ = Compute::kInt8;
};

}  // namespace llm
