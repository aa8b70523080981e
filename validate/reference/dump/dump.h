#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/forward/activation_points.h"
#include "engine/forward/probe.h"
#include "validate/reference/npz/npz.h"

namespace llm {

/// The `__meta__` JSON of an activation dump: who made it, from what, and how. docs/dump_format.md.
struct DumpMeta {
  std::string producer;          ///< "llmcheck", "from_gguf.py", ...
  std::string producer_version;  ///< free text
  std::string model_sha256;      ///< of the model file; empty when there is none
  std::string model_name;        ///< general.name, informative
  std::string tokenizer_hash;    ///< tokenizer_hash() of the vocabulary; may be empty
  std::string merges_hash;       ///< merges_hash() of it; empty in dumps made before there was one
  std::string oracle;            ///< R0, R1, R2, engine, hf, llamacpp
  std::string compute;           ///< f64, f32, int8
  std::string kv;                ///< f64, f32, f16
  double eps = 0;
  double rope_theta = 0;
  std::string qk_layout = "interleaved";           ///< or "half": order of the features of a head
  std::map<std::string, std::string> taps_absent;  ///< tap -> why the producer cannot give it
  // Shape of the model, from "hparams"; 0 where the producer does not say.
  std::size_t n_layers = 0;
  std::size_t head_dim = 0;
  std::size_t rope_dim = 0;  ///< leading dims of a head that rotate
  /// head_dim of each layer, all of which rotates, where layers differ; else empty.
  std::vector<std::size_t> head_dims = {};
  std::vector<std::size_t> rope_dims = {};  ///< rope_dim of each layer, where layers differ
  /// Every other number of "hparams", one of an object as "rope.scale".
  std::map<std::string, double> numbers = {};
};

/// The JSON text. Keys are sorted, so equal metadata gives equal bytes.
std::string to_json(const DumpMeta& meta);

/// Parses and checks it. Errors (kMalformed) name the key, what was found and the rule.
Result<DumpMeta> parse_dump_meta(std::string_view json);

/// "L003/q" or "G/logits": how reports and limits name a tap of a layer (ProbeSink::kGlobal: G).
std::string tap_label(int layer, std::string_view tap);

/// One tap of all tokens of a dump.
struct TapMatrix {
  std::size_t rows = 0;      ///< tokens, in the order they were fed
  std::size_t features = 0;  ///< contiguous
  std::vector<float> values;

  std::span<float> row(std::size_t r) { return std::span(values).subspan(r * features, features); }
  std::span<const float> row(std::size_t r) const {
    return std::span(values).subspan(r * features, features);
  }
};

/// Activations of a run in the format `llmcheck-act/1` (docs/dump_format.md): from a file, whose
/// arrays are read on demand, or from a Recorder. Steps are joined, so two dumps of the same tokens
/// compare equal however each was split into forward calls.
class Dump {
 public:
  /// Opens an NPZ and checks metadata, tokens, positions, step_ptr and every key.
  /// Errors: those of NpzReader; kMalformed naming the key and the rule it breaks.
  static Result<Dump> load(const std::string& path, const NpzLimits& limits = {});

  const DumpMeta& meta() const { return meta_; }
  std::span<const std::int32_t> tokens() const { return tokens_; }
  std::span<const std::int32_t> positions() const { return positions_; }
  /// Tokens of step s are [step_ptr[s], step_ptr[s + 1]).
  std::span<const std::int64_t> step_ptr() const { return step_ptr_; }
  std::size_t n_layers() const { return n_layers_; }
  /// Of the model that it was recorded from: layers have the parts whose taps are there, and
  /// attention.
  TapFlow flow() const;
  /// Array names that are no tap this version knows; a report mentions them.
  const std::vector<std::string>& unknown_keys() const { return unknown_keys_; }

  /// Whether the tap is there in every step.
  bool has(int layer, std::string_view tap) const;
  /// Errors: kMalformed when it is missing in a step or its shape does not fit the step's tokens.
  Result<TapMatrix> tap(int layer, std::string_view tap) const;

  /// Writes the NPZ atomically. Equal dumps give equal bytes.
  Status write(const std::string& path) const;

 private:
  friend class Recorder;
  Dump() = default;
  std::size_t n_steps() const { return step_ptr_.size() - 1; }
  Result<NpyArray> array(const std::string& key) const;
  Status read_index();
  Status read_keys();

  DumpMeta meta_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> positions_;
  std::vector<std::int64_t> step_ptr_ = {0};
  std::size_t n_layers_ = 0;
  std::vector<std::string> unknown_keys_;
  std::optional<NpzReader> file_;           ///< where arrays come from when loaded
  std::map<std::string, NpyArray> arrays_;  ///< where they come from when recorded
};

/// Collects what a session sends to its probe:
///
///   Recorder recorder;
///   session->set_probe(&recorder);
///   ... evaluate with LogitRows::kAll ...
///   session->set_probe(nullptr);
///   LLM_TRY(Dump dump, std::move(recorder).finish(meta));
///
/// Memory: every tap of every token, 4 bytes a value. Calls come from one thread.
class Recorder : public ProbeSink {
 public:
  void begin_step(std::span<const int> tokens, std::size_t first_position) override;
  void tap(int layer, std::string_view name, std::span<float> values, std::size_t features,
           std::size_t first_token) override;

  /// The dump of all steps so far. `meta.n_layers` is filled in when 0.
  /// Errors: kUsage naming the first tap that was sent twice, with rows missing (logits need
  /// LogitRows::kAll), in another width, or outside a step.
  Result<Dump> finish(DumpMeta meta) &&;

 private:
  void fail(int layer, std::string_view name, std::string message);
  void check_complete();
  void check_every_step();

  Dump dump_;
  std::optional<Error> error_;
};

}  // namespace llm
