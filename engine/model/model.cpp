#include "engine/model/model.h"

#include <fmt/core.h>

#include <chrono>
#include <utility>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/float_environment.h"
#include "base/sha256.h"
#include "base/thread_team.h"
#include "engine/gguf/gguf_manifest.h"
#include "engine/model/model_file.h"
#include "engine/model/weight_store.h"
#include "engine/model/weights.h"

namespace llm {
namespace {

Result<Isa> choose_isa(std::optional<Isa> wanted) {
  if (!wanted) return best_isa();
  if (isa_supported(*wanted)) return *wanted;
  return Error{ErrorCode::kUnsupported, "--isa", isa_missing(*wanted)};
}

/// Seconds since the last call.
class Lap {
 public:
  double seconds() {
    const auto last = std::exchange(last_, std::chrono::steady_clock::now());
    return std::chrono::duration<double>(last_ - last).count();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

/// The hash of the mapped bytes, if it is wanted.
Result<std::string> hash_of(const MappedFile& file, const LoadOptions& options) {
  if (!options.hash_file && options.expected_sha256.empty()) return std::string();
  const auto total = static_cast<std::size_t>(file.file_bytes());
  std::string hash = file_sha256_hex(file, [&](std::size_t done) {
    if (options.progress) options.progress("hash", done, total);
  });
  if (options.expected_sha256.empty() || options.expected_sha256 == hash) return hash;
  return Error{.code = ErrorCode::kIntegrity,
               .field = "SHA-256",
               .message = fmt::format("found {}, need {}", hash, options.expected_sha256),
               .file = file.path(),
               .hint = "the file was replaced, or it is the wrong file"};
}

/// Compares the mapped bytes with a manifest, if that is wanted.
Status check_manifest(const ModelFile& model, const LoadOptions& options, int threads) {
  if (!options.manifest) return Ok{};
  const std::string path = options.manifest->empty()
                               ? model.file.path() + std::string(kManifestSuffix)
                               : *options.manifest;
  LLM_TRY(const GgufTree manifest, read_gguf_manifest(path));
  Hashing hashing{.threads = threads};
  if (options.progress) hashing.progress = std::bind_front(options.progress, "compare");
  LLM_TRY(const auto differences, compare_manifest(model.file, manifest, hashing));
  return differences.empty() ? Status(Ok{}) : integrity_error(differences);
}

}  // namespace

Result<std::shared_ptr<const Model>> Model::load(const std::string& path,
                                                 const LoadOptions& options) {
  const FloatEnvironment contract;
  LLM_RETURN_IF_ERROR(choose_isa(options.isa));
  const int threads = options.threads > 0 ? options.threads : available_cpus();
  LLM_RETURN_IF_ERROR(start_threads(threads));
  Lap lap;
  LoadTimes times;
  const HyperParameters* const trunk =
      options.trunk == nullptr ? nullptr : &options.trunk->config();
  LLM_TRY(ModelFile opened, open_model_file(path, {.strict = options.strict, .trunk = trunk}));
  if (trunk == nullptr) LLM_RETURN_IF_ERROR(check_runs_alone(opened));
  LLM_RETURN_IF_ERROR(check_manifest(opened, options, threads));
  LLM_TRY(std::string sha256, hash_of(opened.file, options));
  times.open = lap.seconds();
  auto tokenizer = Tokenizer::create(std::move(opened.vocab));
  if (!tokenizer.ok()) return in_file(std::move(tokenizer).error(), path);
  times.tokenizer = lap.seconds();
  const auto file = std::make_shared<const ModelFile>(std::move(opened));
  std::vector<std::string> warnings = file->warnings;
  auto weights = load_weights(file,
                              {.threads = threads,
                               .defer = options.defer_packing,
                               .packed_cache = options.packed_cache,
                               .compare_cache = options.manifest.has_value(),
                               .progress = options.progress},
                              warnings);
  // What was parsed and hashed is what was packed.
  LLM_RETURN_IF_ERROR(file->file.check_unchanged());
  if (!weights.ok()) return in_file(std::move(weights).error(), path);
  if (file->config.has_trunk()) weights->trunk_embd = options.trunk->weights_->token_embd;
  std::shared_ptr<Model> model(new Model(*file, std::move(weights).value(),
                                         std::move(tokenizer).value(), std::move(warnings)));
  model->file_sha256_ = std::move(sha256);
  for (const std::string& adapter : options.adapters) {
    LLM_TRY(model->adapters_.emplace_back(),
            Adapter::load(adapter, model->config_, *model->weights_, options.hash_file));
  }
  times.weights = lap.seconds();
  model->load_times_ = times;
  LLM_RETURN_IF_ERROR(model->set_options(options));
  return std::shared_ptr<const Model>(std::move(model));
}

Result<std::shared_ptr<const Model>> Model::load_mtp(const std::string& path, const Model& trunk) {
  const FloatEnvironment contract;
  LLM_TRY(ModelFile opened, open_model_file(path, {.mtp = true}));
  const auto file = std::make_shared<const ModelFile>(std::move(opened));
  std::vector<std::string> warnings = file->warnings;
  auto weights = load_weights(file, {.threads = trunk.threads_}, warnings);
  LLM_RETURN_IF_ERROR(file->file.check_unchanged());
  if (!weights.ok()) return in_file(std::move(weights).error(), path);
  weights->token_embd = trunk.weights_->token_embd;
  weights->own_output = trunk.weights_->own_output;
  if (weights->layers[0].head_norm.size() > 0)
    weights->output_norm = std::move(weights->layers[0].head_norm);
  std::shared_ptr<Model> model(new Model(trunk));
  model->config_ = file->config;
  model->warnings_ = std::move(warnings);
  model->weights_ = std::make_shared<const ModelWeights>(std::move(weights).value());
  model->adapters_.clear();  // they update the trunk's weights
  model->make_ropes();
  return std::shared_ptr<const Model>(std::move(model));
}

bool Model::weights_in_memory() const { return weights_->store->in_memory(); }

Status Model::pack_weights() const {
  return weights_in_memory() ? Status(Ok{}) : weights_->store->pack_all(threads_);
}

Status Model::pack_weights_for(std::chrono::nanoseconds time) const {
  using Clock = std::chrono::steady_clock;
  const std::size_t at_once = static_cast<std::size_t>(threads_) * detail::kHugePage;
  const auto started = Clock::now();
  do {
    if (weights_in_memory()) break;
    LLM_RETURN_IF_ERROR(weights_->store->pack_more(threads_, at_once));
  } while (Clock::now() - started < time);
  return Ok{};
}

std::uint64_t Model::packing_pays_after() const {
  constexpr std::uint64_t kIfAllAreRead = 40;  // measured (docs/performance.md)
  return kIfAllAreRead * weights_->store->plan().bytes / weight_bytes();
}

Status Model::check_weights() const { return weights_->store->status(); }

Result<std::shared_ptr<const Model>> Model::variant(const LoadOptions& options) const {
  std::shared_ptr<Model> model(new Model(*this));
  LLM_RETURN_IF_ERROR(model->set_options(options));
  return std::shared_ptr<const Model>(std::move(model));
}

Result<std::shared_ptr<const Model>> Model::with_compute(Compute compute) const {
  LoadOptions options;
  options.compute = compute;
  options.isa = isa_;
  options.threads = threads_;
  return variant(options);
}

std::shared_ptr<const Model> Model::first_layers(std::size_t n_layers) const {
  LLM_CHECK(n_layers >= 1 && n_layers <= config_.n_layers);
  std::shared_ptr<Model> model(new Model(*this));
  model->config_.n_layers = n_layers;
  model->config_.layers.resize(n_layers);
  return model;
}

std::shared_ptr<const Model> Model::with_numbers(
    const std::function<void(HyperParameters&)>& change) const {
  std::shared_ptr<Model> model(new Model(*this));
  change(model->config_);
  model->make_ropes();
  return model;
}

Status Model::set_options(const LoadOptions& options) {
  LLM_TRY(isa_, choose_isa(options.isa));
  threads_ = options.threads > 0 ? options.threads : available_cpus();
  LLM_RETURN_IF_ERROR(start_threads(threads_));
  compute_ = options.compute;
  return Ok{};
}

Model::Model(const ModelFile& file, ModelWeights weights, Tokenizer tokenizer,
             std::vector<std::string> warnings)
    : config_(file.config),
      tokenizer_(std::make_shared<const Tokenizer>(std::move(tokenizer))),
      name_(file.name),
      chat_template_(file.chat_template),
      warnings_(std::move(warnings)),
      file_bytes_(file.file.file_bytes()),
      weights_(std::make_shared<const ModelWeights>(std::move(weights))) {
  make_ropes();
}

void Model::make_ropes() {
  ropes_.clear();
  for (const RopeSpec& rope : config_.ropes)
    ropes_.emplace_back(
        rope, rope.has_divisors ? weights_->rope_divisors.span() : std::span<const float>());
}

}  // namespace llm
