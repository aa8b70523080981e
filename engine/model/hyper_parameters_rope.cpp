#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/shown_text.h"
#include "engine/model/hyper_parameters_reader.h"
#include "engine/model/rope.h"
#include "engine/model/tensor_name.h"
#include "engine/model/tensor_roles.h"

namespace llm {

/// The dims that RoPE turns in layers with a window, or in the others.
/// @param absent  if the file does not say; 0: all of a head
Result<std::size_t> HyperParametersReader::read_rope_dims(std::string_view suffix,
                                                          std::size_t absent,
                                                          bool of_windows) const {
  const bool has_own_rope = config_.architecture->window_rope == WindowRope::kUnscaled;
  std::size_t least = SIZE_MAX;
  for (const LayerSpec& layer : config_.layers)
    if (layer.attention() != nullptr && (!has_own_rope || (layer.window() > 0) == of_windows))
      least = std::min(least, layer.head_dim());
  const bool is_there = least != SIZE_MAX;
  const std::string key = key_of(suffix);
  LLM_TRY(const std::uint64_t dims,
          gguf_.get_unsigned_or(key, absent == 0 && is_there ? least : absent));
  if (!is_there) return static_cast<std::size_t>(std::min<std::uint64_t>(dims, kMaxDim) / 2 * 2);
  if (dims > 0 && dims % 2 == 0 && dims <= least) return static_cast<std::size_t>(dims);
  return malformed(
      key, fmt::format("found {}, need an even number from 2 to the head dim {}", dims, least));
}

Status HyperParametersReader::read_rope() {
  std::size_t first = 0;  // of the layers with attention
  for (const LayerSpec& layer : config_.layers)
    if (first == 0) first = layer.head_dim();
  if (first == 0)
    return unsupported(
        key_of(config_.architecture->full_attention_period == 0 ? keys().n_kv_heads
                                                                : keys().full_attention_period),
        "found no layer with attention, need one");
  LLM_TRY(const std::size_t dims, read_rope_dims(keys().rope_dims, 0, false));
  RopeSpec rope{.dims = dims};
  LLM_TRY(rope.theta, read_positive(key_of(keys().rope_theta), config_.architecture->rope_theta));
  LLM_RETURN_IF_ERROR(read_rope_scaling(rope));
  LLM_RETURN_IF_ERROR(read_query_growth(rope));
  const Architecture& architecture = *config_.architecture;
  config_.ropes = {rope};
  if (architecture.may_lack_rope) {
    LLM_TRY(const bool has_rope, gguf_.get_bool_or(key_of(keys().has_rope), true));
    if (has_rope) return Ok{};
    rope.dims = 0;
    config_.ropes.push_back(rope);
    for (LayerSpec& layer : config_.layers)
      if (layer.attention() != nullptr) layer.attention()->rope = 1;
    return Ok{};
  }
  const std::size_t period = architecture.no_rope_period;
  const bool has_windows = std::ranges::any_of(
      config_.layers, [](const LayerSpec& layer) { return layer.window() > 0; });
  if (period > 0 || (architecture.window_rope == WindowRope::kAlone && has_windows)) {
    rope.dims = 0;
    config_.ropes.push_back(rope);
    for (std::size_t i = 0; i < config_.layers.size(); ++i)
      if (period > 0 ? (i + 1) % period == 0 : config_.layers[i].window() == 0)
        config_.layers[i].attention()->rope = 1;
  }
  if (architecture.window_rope != WindowRope::kUnscaled) return Ok{};
  const float window_theta =
      architecture.window_rope_theta > 0 ? architecture.window_rope_theta : rope.theta;
  RopeSpec of_windows{.has_divisors = false};
  LLM_TRY(of_windows.dims, read_rope_dims(keys().window_rope_dims, dims, true));
  LLM_TRY(of_windows.theta, read_positive(key_of(keys().window_rope_theta), window_theta));
  config_.ropes.push_back(of_windows);
  for (LayerSpec& layer : config_.layers) layer.attention()->rope = layer.window() > 0 ? 1 : 0;
  return Ok{};
}

Status HyperParametersReader::read_rope_scaling(RopeSpec& rope) const {
  const Architecture& architecture = *config_.architecture;
  const std::string key = key_of(keys().rope_scaling);
  LLM_TRY(const std::string_view type, gguf_.get_string_or(key, architecture.default_rope_scaling));
  const auto scaling = std::ranges::find(architecture.rope_scalings, type, &RopeScaling::type);
  if (scaling == architecture.rope_scalings.end() || !scaling->refused.empty()) {
    std::string known;
    for (const RopeScaling& row : architecture.rope_scalings)
      if (row.refused.empty()) known += fmt::format("{}{}", known.empty() ? "" : ", ", row.type);
    const bool is_known = scaling != architecture.rope_scalings.end();
    return unsupported(
        key, fmt::format("found {}, need one of: {}{}{}", quoted(type), known, is_known ? "; " : "",
                         is_known ? scaling->refused : std::string_view()));
  }
  // Older files name the linear factor rope.scale_linear.
  LLM_TRY(const float old_factor, read_positive(key_of(keys().old_rope_scale), 1.0F));
  LLM_TRY(const float factor, read_positive(key_of(keys().rope_scale), old_factor));
  rope.scale = scaling->divides_positions ? factor : 1.0F;
  LLM_TRY(const float magnitude, read_positive(key_of(keys().rope_magnitude), 1.0F));
  rope.magnitude = static_cast<double>(magnitude);
  LLM_RETURN_IF_ERROR(check_long_factors());
  const double own_magnitude = rope.magnitude;
  if (scaling->is_yarn) {
    LLM_RETURN_IF_ERROR(read_yarn(rope));
  }
  return check_yarn_magnitude(rope.magnitude / own_magnitude);
}

/// Some files state the magnitude that YaRN has by itself; another one is not computed.
Status HyperParametersReader::check_yarn_magnitude(double magnitude) const {
  constexpr double kRounding = 1e-5;
  const std::string key = key_of(keys().yarn_magnitude);
  LLM_TRY(const float stated, gguf_.get_float_or(key, 1));
  if (stated == 1.0F || std::abs(static_cast<double>(stated) - magnitude) <= kRounding) return Ok{};
  return unsupported(key, fmt::format("found {}, need 1 or {:.7}: magnitudes follow from the "
                                      "factor here",
                                      stated, magnitude));
}

/// Factors for long texts are read for all: a file whose context they are not for is refused.
Status HyperParametersReader::check_long_factors() const {
  const std::string name =
      name_in_file(*config_.architecture, *find_role("rope_freqs.weight"), kOutsideLayers);
  if (name == "rope_freqs.weight" || gguf_.find_tensor(name) == nullptr) return Ok{};
  const std::string key = key_of(keys().original_context);
  LLM_TRY(const std::uint64_t original, gguf_.get_unsigned(key));
  if (original < config_.context) return Ok{};
  return unsupported(key, fmt::format("found {}, need less than the context {}: the short factors "
                                      "of RoPE are not used here",
                                      original, config_.context));
}

Status HyperParametersReader::read_yarn(RopeSpec& rope) const {
  const std::string key = key_of(keys().original_context);
  LLM_TRY(const std::uint64_t original, gguf_.get_unsigned(key));
  if (original == 0 || original > kMaxContext)
    return malformed(key, fmt::format("found {}, need 1 to {}", original, kMaxContext));
  if (rope.theta <= 1.0F)
    return malformed(key_of(keys().rope_theta),
                     fmt::format("found {}, need more than 1 with YaRN", rope.theta));
  const std::string fast_key = key_of(keys().yarn_fast_turns);
  LLM_TRY(const float fast, read_positive(fast_key, 32));
  LLM_TRY(const float slow, read_positive(key_of(keys().yarn_slow_turns), 1));
  if (fast < slow)
    return malformed(fast_key, fmt::format("found {}, need at least {} = {}", fast,
                                           key_of(keys().yarn_slow_turns), slow));
  const std::string log_key = key_of(keys().yarn_log_multiplier);
  LLM_TRY(float log_multiplier, gguf_.get_float_or(log_key, 0));
  if (log_multiplier != 0) {
    LLM_TRY(log_multiplier, read_positive(log_key, 0));
  }
  apply_yarn(rope, {.original_context = static_cast<double>(original),
                    .fast_turns = static_cast<double>(fast),
                    .slow_turns = static_cast<double>(slow),
                    .log_multiplier = static_cast<double>(log_multiplier),
                    .rounds = config_.architecture->yarn_rounds});
  return Ok{};
}

Status HyperParametersReader::read_query_growth(RopeSpec& rope) const {
  const std::string key = key_of(keys().query_growth);
  LLM_TRY(const float growth, gguf_.get_float_or(key, 0));
  if (growth == 0) return Ok{};
  LLM_TRY(rope.query_growth, read_positive(key, 0));
  const std::string period_key = key_of(keys().original_context);
  LLM_TRY(const std::uint64_t period, gguf_.get_unsigned(period_key));
  if (period == 0 || period > kMaxContext)
    return malformed(period_key, fmt::format("found {}, need 1 to {}", period, kMaxContext));
  rope.query_period = static_cast<std::size_t>(period);
  return Ok{};
}

}  // namespace llm
