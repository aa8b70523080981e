#ifndef LLM_ENGINE_ENGINE_H_
#define LLM_ENGINE_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/cpu_features.h"
#include "base/result.h"
#include "engine/forward/precision.h"
#include "engine/forward/probe.h"
#include "engine/model/hyper_parameters.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocab_spec.h"

namespace llm {

/// Called during long work with the stage's name, items done and items in all.
using Progress = std::function<void(std::string_view stage, std::size_t done, std::size_t total)>;

struct LoadOptions {
  Compute compute = Compute::kInt8;
  std::optional<Isa> isa;  ///< nothing: the best this CPU supports
  int threads = 0;         ///< 0: available_cpus()
  bool strict = false;     ///< warnings about the file are errors
  Progress progress;       ///< may be empty
};

/// A loaded Llama: weights in memory of its own, ready to run. Immutable; shared by sessions.
class Model {
 public:
  /// Opens, checks and packs the model at `path`. Errors name file, tensor or key, value and rule
  /// (docs/bad_input.md); an --isa this CPU lacks is kUnsupported; memory is kResource.
  static Result<std::shared_ptr<const Model>> load(const std::string& path,
                                                   const LoadOptions& options = {});
  virtual ~Model() = default;

  virtual const HyperParameters& config() const = 0;
  virtual const Tokenizer& tokenizer() const = 0;
  virtual const std::string& name() const = 0;           ///< general.name
  virtual const std::string& chat_template() const = 0;  ///< Jinja text from the file, may be empty
  virtual const std::vector<std::string>& warnings() const = 0;
  virtual std::uint64_t file_bytes() const = 0;
  virtual std::uint64_t weight_bytes() const = 0;  ///< bytes read per decoded token
  virtual Isa isa() const = 0;
  virtual int threads() const = 0;
  virtual Compute compute() const = 0;
};

struct SessionOptions {
  std::size_t context = 0;  ///< positions the cache holds; 0: the model's own context_length
  KvType kv = KvType::kF16;
  std::size_t batch = 512;  ///< tokens evaluated at once; never changes a result
  bool reference = false;   ///< true: the definition in plain loops, one thread; slow
  bool use_cache = true;    ///< false: recompute every earlier position on each evaluate()
};

/// Which rows of logits an evaluation is asked for.
enum class LogitRows { kNone, kLast, kAll };

/// One sequence of tokens with its KV cache. Not thread-safe; threads work inside evaluate().
class Session {
 public:
  /// Errors: kResource with the bytes of KV cache needed; kUsage for a context of 0 tokens.
  static Result<std::unique_ptr<Session>> create(std::shared_ptr<const Model> model,
                                                 const SessionOptions& options = {});
  virtual ~Session() = default;

  virtual const Model& model() const = 0;
  virtual const SessionOptions& options() const = 0;

  /// Tokens evaluated so far; the next one has this position.
  virtual std::size_t position() const = 0;
  virtual std::size_t context() const = 0;

  /// Appends `tokens` to the sequence. Prefill and decode are the same call with many tokens or
  /// one.
  /// @return the wanted rows of logits, [rows, n_vocab], valid until the next call
  /// Errors: kUsage for a token id outside the vocabulary; kResource when position() + tokens
  /// exceeds context(); kNonFinite naming layer, tap and position when logits are NaN or Inf. After
  /// an error the session is where it was before the call.
  virtual Result<std::span<const float>> evaluate(std::span<const TokenId> tokens,
                                                  LogitRows rows) = 0;

  /// Forgets every position from `n_positions` on. @pre n_positions <= position()
  virtual void truncate(std::size_t n_positions) = 0;

  /// Sends activations of later evaluations to `sink` (nullptr: none). The sink must outlive its
  /// use.
  virtual void set_probe(ProbeSink* sink) = 0;
};

}  // namespace llm

#endif  // LLM_ENGINE_ENGINE_H_
