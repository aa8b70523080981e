#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/hyper_parameters.h"

namespace llm {

// Far above every model; keeps products of two of these far from wrapping.
constexpr std::uint64_t kMaxDim = 1U << 24;
constexpr std::size_t kMaxConvWidth = 16;
// A context that memory cannot hold is the session's error (kResource), not the file's.
constexpr std::uint64_t kMaxContext = UINT32_MAX;

/// Reads a file's hyper-parameters into one object: the model's and the heads' in
/// hyper_parameters.cpp, those of experts and of layers with a state in
/// hyper_parameters_layers.cpp, RoPE's in hyper_parameters_rope.cpp.
class HyperParametersReader {
 public:
  explicit HyperParametersReader(const GgufFile& gguf) : gguf_(gguf) {}

  Result<HyperParameters> run();

 private:
  Status read_architecture();
  Status read_blocks();
  Status read_width();
  Status read_experts();
  Status read_heads();
  Status read_windows();
  Status read_head_dim();
  Status read_shared_keys();
  Status read_delta_nets();
  Status read_short_convs();
  Result<std::size_t> read_conv_width() const;
  Status read_router(FfnSpec& spec) const;
  Result<std::size_t> read_shared_width(std::size_t d_expert) const;
  Result<std::vector<bool>> read_recurrent_layers() const;
  /// A flag of each layer; empty where the key is absent or holds no array.
  Result<std::vector<bool>> read_flags(const std::string& key) const;
  Status read_context();
  Status read_rope();
  Result<std::size_t> read_rope_dims(std::string_view suffix, std::size_t absent,
                                     bool of_windows) const;
  Status read_rope_scaling(RopeSpec& rope) const;
  Status read_yarn(RopeSpec& rope) const;
  Status check_yarn_magnitude(double magnitude) const;
  Status read_query_growth(RopeSpec& rope) const;
  Status check_long_factors() const;
  Status read_layers();
  Status read_scales();

  Error malformed(std::string_view key, std::string message) const {
    return gguf_.value_error(ErrorCode::kMalformed, key, std::move(message));
  }
  Error unsupported(std::string_view key, std::string message) const {
    return gguf_.value_error(ErrorCode::kUnsupported, key, std::move(message));
  }
  /// A value of each layer.
  using PerLayer = std::vector<std::uint64_t>;
  /// An array's values, or n_layers times a count.
  Result<PerLayer> read_per_layer(const std::string& key) const;
  Status check_count(const std::string& key, const GgufValue& array) const;
  /// The same, 1 to kMaxDim.
  Result<PerLayer> read_dims(const std::string& key) const;
  /// The same where all layers have one value.
  Result<std::size_t> read_dim(const std::string& key) const;
  /// The value, and its layer where layers differ.
  static std::string shown(const PerLayer& values, std::size_t layer);
  Result<float> read_positive(const std::string& key, float absent) const;

  std::string key_of(std::string_view suffix) const { return config_.architecture->key(suffix); }
  const HyperParameterKeys& keys() const { return config_.architecture->keys; }

  const GgufFile& gguf_;
  HyperParameters config_;
};

}  // namespace llm
