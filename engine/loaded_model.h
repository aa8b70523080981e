#ifndef LLM_ENGINE_LOADED_MODEL_H_
#define LLM_ENGINE_LOADED_MODEL_H_

#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/forward/rope.h"
#include "engine/model/weights.h"

namespace llm {

/// The one implementation of Model: what a session computes with.
class LoadedModel final : public Model {
 public:
  static Result<std::shared_ptr<const LoadedModel>> load(const std::string& path,
                                                         const LoadOptions& options);

  /// This model computed otherwise: with the instruction set, threads and compute of `options`, on
  /// the same packed weights, which both share. Errors: kUnsupported. Cost: none worth naming.
  Result<std::shared_ptr<const LoadedModel>> variant(const LoadOptions& options) const;

  const HyperParameters& config() const override { return config_; }
  const Tokenizer& tokenizer() const override { return *tokenizer_; }
  const std::string& name() const override { return name_; }
  const std::string& chat_template() const override { return chat_template_; }
  const std::vector<std::string>& warnings() const override { return warnings_; }
  std::uint64_t file_bytes() const override { return file_bytes_; }
  std::uint64_t weight_bytes() const override { return weights_->bytes_per_token(); }
  Isa isa() const override { return isa_; }
  int threads() const override { return threads_; }
  Compute compute() const override { return compute_; }

  const ModelWeights& weights() const { return *weights_; }
  const Rope& rope() const { return rope_; }

 private:
  LoadedModel(ModelFile file, ModelWeights weights, Tokenizer tokenizer);
  Status set_options(const LoadOptions& options);

  HyperParameters config_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string name_;
  std::string chat_template_;
  std::vector<std::string> warnings_;
  std::uint64_t file_bytes_ = 0;
  std::shared_ptr<const ModelWeights> weights_;
  Rope rope_;
  Isa isa_ = Isa::kScalar;
  int threads_ = 1;
  Compute compute_ = Compute::kInt8;
};

}  // namespace llm

#endif  // LLM_ENGINE_LOADED_MODEL_H_
